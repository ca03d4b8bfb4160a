"""What a TCP port tells of the process behind it: `HOST:PORT`."""

from __future__ import annotations

import socket

_CONNECT_SECONDS = 2.0


def answers(address: str) -> bool:
    """Whether a connection is taken there now."""
    try:
        _connect(address)
    except OSError:
        return False
    return True


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
