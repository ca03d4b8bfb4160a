"""One worker process, from the parent's side: started by the fork server, spoken to, ended.

What a worker that is killed has started, in process groups that are not its own.

Its group is killed with it. What started a session (the ranks of `torchrun`, a daemon) is found
before, while it still is the worker's, and ended after: what ends itself when the worker is gone,
as what keeps programs does with all that is theirs, is given a moment for it.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from automl.execution.isolation.leftover_processes import program_of
from automl.execution.process_tree import descendants
from automl.execution.worker_messages import (
    CarryOutTrial,
    JudgedReports,
    NextTrialFed,
    ToWorker,
    VerdictsAnswered,
    WorkerSetup,
)
from automl.record.stop_signals import ASKED_TO_STOP
from automl.record.texts import how_it_ended
from automl.trial import ProcessId, Reply, TrialSpec, Verdict

_MOMENT_SECONDS = 1.0
_OUTLIVING_LOOK_SECONDS = 0.005


class OutlivingProcesses:
    """For one worker; any thread may note, one ends."""

    def __init__(self) -> None:
        self._found: dict[int, str] = {}
        """When each process began, by which it is known from another of its number."""

    def note(self, pid: int) -> None:
        """Before the worker is killed."""
        found = {child: _began(child) for child in descendants(pid)}
        self._found |= {child: began for child, began in found.items() if began}

    def end(self) -> Sequence[str]:
        """After it was; what had to be killed."""
        ends = time.monotonic() + _MOMENT_SECONDS
        while (rest := self._living()) and time.monotonic() < ends:
            time.sleep(_OUTLIVING_LOOK_SECONDS)
        names = [*dict.fromkeys(map(program_of, rest))]
        for pid in rest:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return names

    def _living(self) -> Sequence[int]:
        return [pid for pid, began in self._found.items() if _began(pid) == began]


def _began(pid: int) -> str:
    """In ticks of the clock; empty where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


logger = logging.getLogger(__name__)

CONTEXT = multiprocessing.get_context("forkserver")
_EXECUTION = ExecutionConfig()
_END_SECONDS = 5.0
"""How long a worker may take to end, that is idle or cannot be spoken to, before it is killed: what
a user's code registered for its end is called meanwhile."""


def preload_fork_server(*modules: str) -> None:
    """Start the fork server with modules loaded in it. They must not touch CUDA there."""
    CONTEXT.set_forkserver_preload(["automl.execution.fork_server", *modules])
    with _interrupts_wait():
        forkserver.ensure_running()


@cache
def _find_room_for_sockets() -> None:
    """Python's sockets lie below TMPDIR, which Slurm may have given more bytes than a socket's name
    has: those alone then lie in /tmp, in a folder that goes with this process.

    Only before the first child, as what asks for a temporary file meanwhile gets one in /tmp, too.
    """
    if len(os.fsencode(tempfile.gettempdir())) <= _MOST_BYTES_OF_TMPDIR:
        return
    before, tempfile.tempdir = tempfile.tempdir, "/tmp"
    try:
        util.get_temp_dir()  # remembers it, and tells children
    finally:
        tempfile.tempdir = before


_MOST_BYTES_OF_TMPDIR = 107 - len("/pymp-12345678/listener-12345678")


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """A server that starts within is born with what asks to stop kept back, until it has said
    that it ignores it (`fork_server`). In any thread, which hears of it afterwards."""
    _find_room_for_sockets()
    resource_tracker.ensure_running()  # the server's start would, and lets Ctrl-C through after it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _unseen_main() -> Iterator[None]:
    """While a child is started the main module has no name and no file, or the child would run it
    again: a script that calls `automl.sweep` without an `if __name__ == "__main__"` would begin
    another sweep in each worker. No child of ours needs it.

    Whoever looks at `__main__.__file__` just then, in another thread, misses it.
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


def start_child(name: str, target: Callable[..., None], *args: object) -> ForkServerProcess:
    """A process forked from the server; a server that was killed is started anew, once.

    Raises AutoMLError when that dies, too.
    """
    n_killed, until = 0, time.monotonic() + _DIES_SECONDS
    while n_killed < 2:
        child = CONTEXT.Process(name=name, target=target, args=args)
        try:
            with _unseen_main(), _interrupts_wait():
                child.start()
        except (EOFError, ConnectionError) as error:  # it died while it was asked
            cause = error
        else:
            return child
        if isinstance(cause, ConnectionRefusedError) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)  # it still is the one that died
        else:
            n_killed += 1
    raise AutoMLError(
        "the server that training processes are forked from was killed twice while it loaded its "
        "libraries (for lack of memory?): make room, or train in this process with "
        "execution=inline."
    ) from cause


_DIES_SECONDS = 5.0
"""A server that is killed closes its sockets a moment before it can be seen to be dead; until then,
at most, nobody answers and no other is started in its place."""
_LOOK_SECONDS = 0.01


def _not_counted() -> int | None:
    return None


@dataclass(frozen=True)
class WorkerLimits:
    """When a trial or a worker is ended."""

    max_workers: int
    max_devices: int = 1
    """The most devices that a trial may have."""
    trial_timeout_seconds: float | None = None
    silence_timeout_seconds: float | None = None
    recycle_after_trials: int = _EXECUTION.recycle_after_trials
    recycle_growth_bytes: int = _EXECUTION.recycle_growth_bytes
    judging: JudgedReports | None = None
    """Which reports can end their trial; None: no report can."""
    n_oom_kills: Callable[[], int | None] = _not_counted
    """How many processes the kernel has killed for lack of memory; None: it does not count."""
    idle_patience_seconds: float = 10.0
    """A worker that takes longer after its last trial to give memory back is killed. It takes
    milliseconds, on a busy machine more."""


class WorkerProcess:
    """A child process of some devices, nearly always one. One pool thread speaks to it at a time;
    any may stop it."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.devices, self.slot = setup.devices, setup.slot
        self.idle = True
        """Ready for work; false from `begin` until it says that it is idle again."""
        self.spent = False
        """It said that it is fit for no other trial."""
        self._n_trials = 0
        self._first_memory_bytes: int | None = None
        self._sending = threading.Lock()
        self._outliving = OutlivingProcesses()
        self.pipe, theirs = CONTEXT.Pipe()
        self._bell, their_bell = CONTEXT.Pipe(duplex=False)
        self.process = start_child(
            f"automl-worker-{setup.slot.number}", worker.main, setup, theirs, their_bell
        )
        theirs.close()
        their_bell.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        self._memory_at_start_bytes = _resident_bytes(self.pid)

    @property
    def address(self) -> ProcessId:
        return ProcessId(self.devices[0].node, self.pid)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    @property
    def grown_bytes(self) -> int:
        """Main memory it took since it was forked."""
        return max(0, _resident_bytes(self.pid) - self._memory_at_start_bytes)

    def begin(self, work: CarryOutTrial) -> None:
        self.idle = False
        self._n_trials += 1
        self._send(work)

    def feed(self, spec: TrialSpec | None) -> None:
        self._n_trials += spec is not None
        self._send(NextTrialFed(spec))

    def answer(self, verdicts: Mapping[int, Verdict], *, waits: bool) -> None:
        """Nothing is sent where all go on; `waits`: the worker does, for an answer."""
        if any(verdict is not Verdict.GO_ON for verdict in verdicts.values()):
            self._send(VerdictsAnswered(verdicts))
        if waits:
            self.slot.answer()

    def reply(self, reply: Reply) -> None:
        """To the question of its trial, which waits for it."""
        self._send(reply)

    def stop(self, trials: Iterable[int]) -> None:
        """Tell trials to stop at their next report."""
        self._send(VerdictsAnswered(dict.fromkeys(trials, Verdict.STOP)))

    def wait(self, seconds: float) -> bool:
        """Until it rings, time is up, or the process has ended: then the answer is true."""
        ready = wait([self._bell, self.process.sentinel], seconds)
        if self._bell in ready:
            os.read(self._bell.fileno(), 4096)  # all rings at once
        return self.process.sentinel in ready

    def kill(self) -> None:
        """End the process and its children now."""
        self._outliving.note(self.pid)
        with suppress(ProcessLookupError):  # it has ended, or has no group of its own yet
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()

    def dismiss(self) -> None:
        """Let the process end if it is idle, without waiting for it."""
        if self.idle:
            self._send(None)

    def end(self) -> None:
        """Let the process end if it is idle, else make it."""
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
        """`SIGSEGV`, or `exit status 3`; makes one end that only closed its pipe."""
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        return how_it_ended(code)

    def is_worn(self, limits: WorkerLimits) -> bool:
        """Whether it has served long enough, or its memory grew and stayed, or it said so."""
        if self.spent:
            return True
        memory = _resident_bytes(self.pid)
        if self._first_memory_bytes is None:
            self._first_memory_bytes = memory
        grown = memory - self._first_memory_bytes
        return self._n_trials >= limits.recycle_after_trials or grown > limits.recycle_growth_bytes

    def _send(self, message: ToWorker) -> None:
        with self._sending, suppress(OSError):  # dead: whoever waits for its word is told so
            self.pipe.send(message)
            self.slot.sent()  # only now, so that the message is there


def _resident_bytes(pid: int) -> int:
    """Main memory of a process (Linux; 0 elsewhere, where workers are recycled by count alone)."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
