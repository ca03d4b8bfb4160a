"""Handles one worker process from the parent's side: starts it from the fork server, sends it
messages, and ends it with all that it has started.

A worker's process group is killed with it. Processes that have a session of their own (the ranks of
`torchrun`, a daemon) are listed before, while they still are the worker's descendants, and killed
after. They get a moment first, since some end themselves when the worker is gone; the process that
supervises a trial's programs does so, with all that they have started.

The module does not decide when a worker is ended (`supervision.py`), nor which trial it gets.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from automl.config import ExecutionConfig
from automl.errors import AutoMLError
from automl.execution import worker
from automl.execution.process_tree import (
    OutlivingProcesses,
    kill_found_processes,
    start_ticks,
)
from automl.execution.worker_messages import (
    CarryOutTrial,
    JudgedReports,
    NextTrialFed,
    ToWorker,
    VerdictsAnswered,
    WorkerSetup,
)
from automl.record.stop_signals import STOP_SIGNALS
from automl.record.texts import exit_status_text
from automl.trial import ProcessId, Reply, TrialSpec, Verdict

logger = logging.getLogger(__name__)

FORK_SERVER_CONTEXT = multiprocessing.get_context("forkserver")
_EXECUTION = ExecutionConfig()
RECYCLE_GROWTH_BYTES = 2 * 2**30
_END_SECONDS = 5.0
"""A worker that is idle, or that has closed its pipe, is killed if it takes longer than this to
end. Exit handlers that the user's code has registered run meanwhile."""


def preload_fork_server(*modules: str) -> None:
    """Start the fork server with these modules loaded. They must not touch CUDA there."""
    FORK_SERVER_CONTEXT.set_forkserver_preload(["automl.execution.fork_server", *modules])
    with _interrupts_wait():
        _run_server()


def _run_server() -> None:
    """Start the server unless it runs, and keep the pipe whose closing ends it to this process.

    multiprocessing sends the pipe with each request and gives it to each child. In a request that a
    server does not take yet, as it loads, and in a program that a trial starts, the pipe would
    outlive this process, and the server with it.
    """
    forkserver.ensure_running()
    server = vars(forkserver._forkserver)
    if (pid := server["_forkserver_pid"]) not in _kept_pipes:
        while _kept_pipes:
            os.close(_kept_pipes.popitem()[1])
        _kept_pipes[pid] = server["_forkserver_alive_fd"]
        server["_forkserver_alive_fd"] = os.open(os.devnull, os.O_WRONLY)


_kept_pipes: dict[int, int] = {}
"""The end of the pipe to the server, by the server's id."""


@cache
def _place_sockets() -> None:
    """Let multiprocessing put its sockets into /tmp where the path of TMPDIR is too long for them.

    Slurm may set a TMPDIR with more bytes than the name of a socket can have. Only the sockets then
    lie in /tmp, in a folder that is removed with this process. This happens once, before the first
    child: code that asks for a temporary file during the call gets one in /tmp, too.
    """
    if len(os.fsencode(tempfile.gettempdir())) <= _MAX_TMPDIR_BYTES:
        return
    before, tempfile.tempdir = tempfile.tempdir, "/tmp"
    try:
        util.get_temp_dir()  # multiprocessing remembers the folder, and tells its children
    finally:
        tempfile.tempdir = before


_MAX_TMPDIR_BYTES = 107 - len("/pymp-12345678/listener-12345678")


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Block the signals that ask to stop, in the calling thread, until the context ends.

    A fork server that starts within inherits the block, until it ignores these signals itself
    (`fork_server.py`). The calling thread gets the signals afterwards.
    """
    _place_sockets()
    # The server's start would start the tracker, and unblock Ctrl-C after that.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Hide the name and file of the main module, so that a child started within does not run it.

    A script that calls `automl.sweep` without an `if __name__ == "__main__"` would otherwise begin
    another sweep in each worker. Our child processes do not need the main module. Another thread
    that reads `__main__.__file__` meanwhile does not find it.
    """
    with _hiding:
        names = vars(sys.modules["__main__"])
        hidden: dict[str, Any] = {n: names[n] for n in ("__spec__", "__file__") if n in names}
        names["__spec__"] = None
        names.pop("__file__", None)
        try:
            yield
        finally:
            names.pop("__spec__")
            names.update(hidden)


_hiding = threading.Lock()


def start_forked_child(name: str, target: Callable[..., None], *args: object) -> ForkServerProcess:
    """Start a process forked from the server. A server that was killed is started anew, once.

    Raises AutoMLError when the second server dies, too.
    """
    n_killed, deadline = 0, time.monotonic() + _SERVER_DEATH_SECONDS
    while n_killed < 2:
        child = FORK_SERVER_CONTEXT.Process(name=name, target=target, args=args)
        try:
            with _main_module_hidden(), _interrupts_wait():
                _run_server()
                child.start()
        except (EOFError, ConnectionError) as error:  # the server died during the request
            cause = error
        else:
            return child
        if isinstance(cause, ConnectionRefusedError) and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)  # this still is the server that died
        else:
            n_killed += 1
    raise AutoMLError(
        "the server that training processes are forked from was killed twice while it loaded its "
        "libraries (for lack of memory?): make room, or train in this process with "
        "execution=inline."
    ) from cause


_SERVER_DEATH_SECONDS = 5.0
"""Longest wait until a killed server is seen to be dead. It closes its sockets a moment before
that; until then nobody answers, and no other server is started in its place."""
_RETRY_SECONDS = 0.01


def _no_oom_count() -> int | None:
    return None


@dataclass(frozen=True)
class WorkerLimits:
    """Sets when a trial or a worker is ended, and how many workers there may be."""

    max_workers: int
    trial_timeout_seconds: float | None = None
    silence_timeout_seconds: float | None = None
    recycle_after_trials: int = _EXECUTION.recycle_after_trials
    recycle_growth_bytes: int = RECYCLE_GROWTH_BYTES
    """A worker is replaced when its memory has grown by so much and stays so."""
    judging: JudgedReports | None = None
    """The reports that can end their trial; None if no report can."""
    n_oom_kills: Callable[[], int | None] = _no_oom_count
    """Returns how many processes the kernel has killed for lack of memory; None: not counted."""
    idle_patience_seconds: float = 10.0
    """A worker that takes longer than this to give memory back after its last trial is killed.
    Giving memory back takes milliseconds, on a busy machine more."""


class WorkerProcess:
    """A child process that trains on certain devices, nearly always one.

    One pool thread at a time sends it work and receives its messages; any thread may `stop` or
    `kill` it.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.entry, self.devices, self.numbers = setup.entry, setup.devices, setup.numbers
        self.idle = True
        """Whether the worker is ready; false from `begin` until it reports that it is idle again.
        """
        self.is_reusable = True
        """Whether the worker can take another trial, as far as it has reported."""
        self._n_trials = 0
        self._first_memory_bytes: int | None = None
        self._sending = threading.Lock()
        self._outliving = OutlivingProcesses()
        self.pipe, theirs = FORK_SERVER_CONTEXT.Pipe()
        self._bell, their_bell = FORK_SERVER_CONTEXT.Pipe(duplex=False)
        self.process = start_forked_child("automl-worker", worker.main, setup, theirs, their_bell)
        theirs.close()
        their_bell.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        self._start_ticks = start_ticks(self.pid)
        self._memory_at_start_bytes = _resident_bytes(self.pid)

    @property
    def address(self) -> ProcessId:
        return ProcessId(self.devices[0].node, self.pid)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    @property
    def grown_bytes(self) -> int:
        """Growth of the worker's main memory since it was forked."""
        return max(0, _resident_bytes(self.pid) - self._memory_at_start_bytes)

    def begin(self, work: CarryOutTrial) -> None:
        self.idle = False
        self._n_trials += 1
        self._send(work)

    def feed(self, spec: TrialSpec | None) -> None:
        self._n_trials += spec is not None
        self._send(NextTrialFed(spec))

    def answer(self, verdicts: Mapping[int, Verdict], *, waits: bool) -> None:
        """Send verdicts unless all trials go on; `waits` tells whether the worker waits."""
        if any(verdict is not Verdict.GO_ON for verdict in verdicts.values()):
            self._send(VerdictsAnswered(verdicts))
        if waits:
            self.numbers.counters.n_answered += 1

    def reply(self, reply: Reply) -> None:
        """Send the reply to a question of the worker's trial, which waits for it."""
        self._send(reply)

    def stop(self, trials: Iterable[int]) -> None:
        """Tell trials to stop at their next report."""
        self._send(VerdictsAnswered(dict.fromkeys(trials, Verdict.STOP)))

    def wait(self, seconds: float) -> bool:
        """Wait until the worker rings, time is up or the process ends; return whether it ended."""
        ready = wait([self._bell, self.process.sentinel], seconds)
        if self._bell in ready:
            os.read(self._bell.fileno(), 4096)  # all rings at once
        if self.process.sentinel not in ready:
            return False
        self._end_with_server()
        return True

    def _end_with_server(self) -> None:
        """Kill the worker if it lives: its fork server has died, so nothing tells of its end.

        It would go on to report to nobody, while another worker carries on its trial.
        """
        if self._is_there():
            self.kill()
            kill_found_processes(lambda: [self.pid] if self._is_there() else [])

    def _is_there(self) -> bool:
        return start_ticks(self.pid) == self._start_ticks != ""

    def kill(self) -> None:
        """Kill the process and its group now."""
        self._outliving.note(self.pid)
        with suppress(ProcessLookupError):  # the process has ended, or has no group of its own yet
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()

    def dismiss(self) -> None:
        """Let the process end if it is idle, without waiting for it."""
        if self.idle:
            self._send(None)

    def end(self) -> None:
        """Let the process end if it is idle, else kill it; return when it has ended."""
        self.dismiss()
        if self.idle:
            self.process.join(_END_SECONDS)
            if self.process.is_alive():
                logger.warning(
                    "worker %d did not end within %g s, its atexit hooks included: killed",
                    self.pid,
                    _END_SECONDS,
                )
        if self.process.is_alive() or not self.idle:  # dead or not, its children may live
            self.kill()
            self.process.join()
            if names := self._outliving.end():
                logger.warning("processes of a worker that was killed, too: %s", "; ".join(names))
        self.pipe.close()
        self._bell.close()
        self.process.close()

    def how_it_died(self) -> str:
        """Return how the process ended: `SIGSEGV`, or `exit status 3`.

        A process that has only closed its pipe is killed.
        """
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        return exit_status_text(code)

    def is_worn(self, limits: WorkerLimits) -> bool:
        """Return whether the worker has run enough trials, has grown too much, or stays changed."""
        if not self.is_reusable:
            return True
        memory = _resident_bytes(self.pid)
        if self._first_memory_bytes is None:
            self._first_memory_bytes = memory
        grown = memory - self._first_memory_bytes
        return self._n_trials >= limits.recycle_after_trials or grown > limits.recycle_growth_bytes

    def _send(self, message: ToWorker) -> None:
        # A dead worker fails the send; the thread that waits for its messages finds out.
        with self._sending, suppress(OSError):
            self.pipe.send(message)
            self.numbers.counters.n_sent += 1  # only now, so that a counted message is in the pipe


def _resident_bytes(pid: int) -> int:
    """Return the main memory of a process.

    Linux only; 0 elsewhere, where workers are recycled by the number of their trials alone.
    """
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
