"""No process of the tests reaches beyond this machine; see `tests/network_guard`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network_guard.sitecustomize import LOG, is_allowed

ELSEWHERE = "203.0.113.7"
"""An address of nobody's (RFC 5737) that is not in the guard's list."""
CONNECT = f"import socket; socket.create_connection(({ELSEWHERE!r}, 80), 1)"
NAME = "automl.readthedocs.io"
"""Somebody's name."""
SEND = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ({ELSEWHERE!r}, 53))"


def test_a_connection_that_leaves_the_machine_is_refused_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    with pytest.raises(PermissionError, match=f"connected to {ELSEWHERE}"):
        socket.create_connection((ELSEWHERE, 80), 1)
    for code in (CONNECT, CONNECT.replace(ELSEWHERE, NAME), SEND):
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert b"PermissionError" in child.stderr
    log = (tmp_path / "log").read_text()
    assert (log.count(ELSEWHERE), log.count(NAME)) == (3, 1)


def test_this_machine_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 1).close()
    assert is_allowed("::1")
    assert is_allowed("nobody.example")
    assert not is_allowed("8.8.8.8")
    assert os.environ[LOG]
