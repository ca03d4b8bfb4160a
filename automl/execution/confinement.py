"""A process that runs what nobody vouches for: what it may take, and that nothing of it is left.

The process that is started supervises and runs none of it: a child of its own does. Whatever that
starts, daemons included, comes back to the supervisor, their subreaper, and is ended with it.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from automl.execution.descendants import adopt_orphans, kill_descendants
from automl.execution.lifeline import die_with_parent
from automl.record.stopping import leave_to_sweep

SIGNALLED = 128
"""Added to a signal's number in the exit status, as shells do."""


@dataclass(frozen=True)
class Confinement:
    """What a confined process may take."""

    seconds: float = 30.0
    memory_bytes: int = 4 * 1024**3
    """Main memory, of it and all that it starts."""
    file_bytes: int = 1024**3
    """The largest file that it may write."""
    niceness: int = 10
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """What differs there; None: not set."""


def run_confined(confinement: Confinement, run: Callable[[], None]) -> NoReturn:
    """Call `run` in a child of this process, and end with its exit status when all is ended."""
    die_with_parent()
    leave_to_sweep()
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        _run(confinement, run)
    status = _wait_for(pid)
    kill_descendants(os.getpid())
    os._exit(status)


def _run(confinement: Confinement, run: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        _confine(confinement)
        run()
        status = 0
    finally:
        os._exit(status)  # without waiting for threads, and without what is registered for the end


def _wait_for(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNALLED - code


def _confine(confinement: Confinement) -> None:
    os.nice(confinement.niceness)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, confinement.file_bytes)
    _limit(resource.RLIMIT_DATA, _data_bytes() + confinement.memory_bytes)
    for name, value in confinement.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    del sys.argv[1:]  # an objective that parses arguments would take the sweep's for its own
    _close_streams()


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _data_bytes() -> int:
    """Private memory that this process has asked for: what it was forked with (Linux; else 0)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("VmData:")), 0)


def _close_streams() -> None:
    """Nothing is read, and what is printed goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  until the process ends
    sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
