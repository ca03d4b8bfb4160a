"""Programs of ours that begin with their libraries loaded, for tests that start many of them.

To load MLflow and to open a first store takes a delivering process 1 s of a core, to load torch a
fork server another: more than all else in most sweeps of the tests. Here a server loads them once.
It is forked when this process starts `python -P -m automl.tracking.deliver.process`, or
`python -m automl` with `FORKED` in its environment. The fork is a child of this process like any
other, with the pipes, the folder and the environment it was given. If the environment could change
what is loaded, a program is started as usual.
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

from automl.tracking.mlflow_loading import set_mlflow_defaults
from tests.network_guard import GUARD
from tests.warm_server import DELIVERER, MESSAGE_BYTES, PROGRAM, STOPPED

FORKED = "AUTOML_TESTS_FORKED"
"""The variable by which a test says that how its program starts is not its concern."""
_ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_ROOT = str(Path(__file__).parents[1])
PROGRAM_PATH = os.pathsep.join(
    [
        GUARD,
        _ROOT,
        *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p != GUARD and p),
    ]
)
"""Where programs look for modules: the same for all, as only then one warm server suits them."""
_LOOKED_AT = ("MLFLOW_", "PYTHON", "LD_")
"""Names of variables that Python, its libraries and MLflow look at while they load begin so."""


class WarmServer:
    """A process that has loaded what a module needs, and is forked."""

    def __init__(self, module: str, database: Path, environment: Mapping[str, str]) -> None:
        self._looked_at = _looked_at(environment)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", "tests.warm_server"]
            self._process = subprocess.Popen(
                [*command, module, str(database), str(theirs.fileno())],
                cwd="/",  # it outlives the folder of the test that needs it first
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


def _usual_variables() -> dict[str, dict[str, str]]:
    """Return the variables that a program, and a delivering process, look at while they load."""
    environment = dict(os.environ)
    set_mlflow_defaults(environment)
    environment.pop("MLFLOW_TRACKING_URI", None)
    delivered_by = os.pathsep.join(filter(None, (_ROOT, environment.get("PYTHONPATH"))))
    return {
        PROGRAM: _looked_at({**environment, "PYTHONPATH": PROGRAM_PATH}),
        DELIVERER: _looked_at({**environment, "PYTHONPATH": delivered_by}),
    }


_USUAL = _usual_variables()
"""The variables that each module looks at while it loads, before any test has changed one."""


def usual_environment() -> dict[str, str]:
    """Return the environment of a test's program, without what earlier tests left in this one."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith(_LOOKED_AT)}
    return {**rest, **_USUAL[PROGRAM]}


def _module_of(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What a command line runs, where that may be forked."""
    if list(words) == ["-P", "-m", DELIVERER]:
        return DELIVERER
    if list(words[:2]) == ["-m", PROGRAM] and FORKED in environment:
        return PROGRAM
    return None


@contextmanager
def warm_programs(database: Path) -> Iterator[None]:
    """What this process starts is forked where it may be; `database` is an empty store."""
    servers: dict[str, WarmServer] = {}
    real = subprocess._fork_exec  # type: ignore[attr-defined]

    def fork_exec(args: Sequence[str], *rest: Any) -> int:
        folder, entries, pipes, new_session = rest[3], rest[4], rest[5:11], rest[14]
        environment = dict(os.fsdecode(entry).split("=", 1) for entry in entries or ())
        module = _module_of(args[1:], environment)
        if module is None:
            return int(real(args, *rest))
        environment.pop(FORKED, None)
        # A server for variables that one test sets would suit no other.
        if module not in servers and _looked_at(environment) == _USUAL[module]:
            servers[module] = WarmServer(module, database, environment)
        if module not in servers or not servers[module].suits(environment):
            assert STOPPED not in environment, "only a program that is forked begins stopped"
            return int(real(args, *rest))
        os.umask(umask := os.umask(0o022))
        job = {
            "words": list(args[args.index(module) + 1 :]),
            "folder": os.path.abspath(folder or "."),
            "environment": environment,
            "new_session": new_session,
            "umask": umask,
        }
        given = (pipes[0], pipes[3], pipes[5])  # as `subprocess.Popen._execute_child` gives them
        fds = [own if fd == -1 else fd for own, fd in enumerate(given)]
        return servers[module].fork(job, fds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "_fork_exec", fork_exec)
        yield
    for server in servers.values():
        server.close()
