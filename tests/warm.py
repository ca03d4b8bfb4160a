"""Delivering processes that begin with MLflow loaded, for tests that start hundreds of them.

To load it and to open a first store takes each of them 1 s of a core, more than all else in most
sweeps of the tests. Here a server loads it once and is forked wherever this process starts
`python -P -m automl.tracking.deliver`. What comes of it is a child of this process like any other,
with the pipes, the folder and the environment it was given. Where the environment could change
what is loaded, and in every program that a test starts, it is started as ever.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.warm_server import MESSAGE_BYTES, MODULE

ROOT = Path(__file__).parents[1]
_ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_LOOKED_AT = ("MLFLOW_", "PYTHON", "LD_")
"""Names of variables that Python, its libraries and MLflow look at while they load begin so."""


class WarmServer:
    """A process that has MLflow loaded, and is forked."""

    def __init__(self, database: Path, environment: Mapping[str, str]) -> None:
        self._looked_at = _looked_at(environment)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = ["-P", "-m", "tests.warm_server", str(database), str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, *command],
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with that environment would load the same."""
        no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
        return no_limit and _looked_at(environment) == self._looked_at

    def fork(self, job: Mapping[str, Any], fds: Sequence[int]) -> int:
        """The id of a child of this process that does the job; `fds` are its first three files."""
        text = json.dumps(job).encode()
        assert len(text) < MESSAGE_BYTES
        rights = array.array("i", fds)
        with self._lock, _adopting_orphans():
            self._socket.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            return int(self._socket.recv(32))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _looked_at(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_LOOKED_AT)}


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """A process below this one whose parent ends meanwhile becomes its child."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_ADOPT_ORPHANS, 0, 0, 0, 0)


@contextmanager
def warm_deliverers(database: Path) -> Iterator[None]:
    """Delivering processes that this process starts are forked; `database` is an empty store."""
    started: list[WarmServer] = []
    real = subprocess._fork_exec  # type: ignore[attr-defined]

    def fork_exec(args: Sequence[str], *rest: Any) -> int:
        pipes, new_session = rest[5:11], rest[14]  # see `subprocess.Popen._execute_child`
        if list(args[1:]) != ["-P", "-m", MODULE]:
            return int(real(args, *rest))
        entries = [entry.decode(errors="surrogateescape") for entry in rest[4]]
        environment = dict(entry.split("=", 1) for entry in entries)
        if not started:
            started.append(WarmServer(database, environment))
        (server,) = started
        if not server.suits(environment):
            return int(real(args, *rest))
        os.umask(umask := os.umask(0o022))
        job = {
            "folder": os.path.abspath(rest[3]),
            "environment": environment,
            "new_session": new_session,
            "umask": umask,
        }
        given = (pipes[0], pipes[3], pipes[5])
        return server.fork(job, [own if fd == -1 else fd for own, fd in enumerate(given)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "_fork_exec", fork_exec)
        yield
    for server in started:
        server.close()
