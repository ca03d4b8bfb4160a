"""One question answered in a child process, so that the parent need not import what it takes.

A process that answers one question after another, beside trials and behind them.

A process that runs what nobody vouches for: what it may take, and that nothing of it is left.

The process that is started supervises and runs none of it: a child of its own does. Whatever that
starts, daemons included, comes back to the supervisor, their subreaper, and is ended with it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NoReturn

from automl.errors import AutoMLError, ConfigError
from automl.execution.executor import resolve_entry
from automl.execution.process_tree import (
    adopt_orphans,
    die_with_parent,
    kill_descendants,
    memory_bytes,
)
from automl.execution.worker_process import CONTEXT, start_child
from automl.record.stop_signals import leave_to_sweep
from automl.record.texts import how_it_ended
from automl.trial import ProcessEntry

_NICENESS = 10
"""Trials go first."""


class NoAnswerError(Exception):
    """Raised when the process has ended, so that there is no answer, now or later."""


class AnsweringProcess:
    """Of one thread, which need not wait. What the entry's function returns for its config answers,
    and keeps what it likes from one question to the next."""

    def __init__(self, entry: ProcessEntry) -> None:
        """Raises AutoMLError where none can be started."""
        self._pipe, theirs = CONTEXT.Pipe()
        self._child = start_child("automl-answers", _serve, entry, theirs)
        theirs.close()
        self.busy = False
        """It works at a question, or its answer has not been taken."""

    def ask(self, question: object) -> None:
        """Raises NoAnswerError."""
        assert not self.busy, "one question after another"
        try:
            self._pipe.send(question)
        except OSError as error:
            raise NoAnswerError from error
        self.busy = True

    def poll(self) -> object | None:
        """The answer; None: it is not there yet. Raises NoAnswerError, or the answer's own
        AutoMLError."""
        return self._taken() if self.busy and self._pipe.poll() else None

    def answer(self, question: object) -> object:
        """Wait for it, and for that to an earlier question, which nobody wants any more. Raises as
        `poll` does."""
        if self.busy:
            with suppress(AutoMLError):
                self._taken()
        self.ask(question)
        return self._taken()

    def end(self) -> None:
        """At once, whatever it works at."""
        self._child.kill()
        self._child.join()
        self._pipe.close()

    def _taken(self) -> object:
        try:
            answer: object = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise NoAnswerError from error
        self.busy = False
        if isinstance(answer, AutoMLError):
            raise answer
        return answer


def _serve(entry: ProcessEntry, pipe: Connection) -> None:
    """Until whoever asks is gone."""
    leave_to_sweep()
    os.nice(_NICENESS)
    answers: Callable[[object], object] | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            question = pipe.recv()
            try:
                answers = answers or resolve_entry(entry.target)(entry.config)
                answer = answers(question)
            except AutoMLError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
                answer = AutoMLError("".join(traceback.format_exception_only(error)).strip())
            pipe.send(answer)


SIGNALLED = 128
"""Added to a signal's number in the exit status, as shells do."""


@dataclass(frozen=True)
class ProcessConfinement:
    """What a confined process may take."""

    seconds: float = 30.0
    memory_bytes: int = 4 * 1024**3
    """Main memory, of it and all that it starts."""
    file_bytes: int = 1024**3
    """The largest file that it may write."""
    niceness: int = 10
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """What differs there; None: not set."""


def run_confined(confinement: ProcessConfinement, run: Callable[[], None]) -> NoReturn:
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


def _run(confinement: ProcessConfinement, run: Callable[[], None]) -> NoReturn:
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


def _confine(confinement: ProcessConfinement) -> None:
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


def call_in_child(entry: ProcessEntry) -> object:
    """What the entry's function returns for its config, both of them picklable.

    An AutoMLError raised there is raised here; a child that dies is a ConfigError. Where Ctrl-C
    ends the wait, nothing is left that goes on with the answer.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = start_child("automl-question", _answer, entry, theirs)
    theirs.close()
    try:
        answer: object = ours.recv()
    except EOFError:
        child.join()
        how = how_it_ended(child.exitcode or 0)
        raise ConfigError(
            f"{entry.target}: the process that was to import the objective ended with {how}; its "
            "own words are above. Mend the module, or look into it with execution=inline."
        ) from None
    except BaseException:
        child.kill()
        child.join()
        raise
    finally:
        ours.close()
    child.join()
    if isinstance(answer, AutoMLError):
        raise answer
    return answer


_LOOK_SECONDS = 0.1
"""How often the main memory of a confined process is looked at."""


def call_confined(
    entry: ProcessEntry,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool] = lambda: False,
) -> object:
    """What the entry's function returns for its config, in a process that is confined and of which
    nothing is left when this returns.

    An AutoMLError raised there is raised here, and one that says how the process ended or what it
    took too much of, or that nobody waits for it any more: `is_over` is asked ten times a second.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = start_child("automl-confined", _answer_confined, entry, confinement, theirs)
    theirs.close()
    try:
        answer = _awaited(ours, child, confinement, is_over)
    finally:
        _end(child)
        ours.close()
    if isinstance(answer, AutoMLError):
        raise answer
    return answer


def stream_confined(
    entry: ProcessEntry,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool] = lambda: False,
) -> Generator[object, None, None]:
    """What the entry's function yields for its config, as it comes; none of it is None.

    As `call_confined`, whose seconds are here those from one to the next. Close it, or use it up:
    its process lives until then.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = start_child("automl-confined", _stream_confined, entry, confinement, theirs)
    theirs.close()
    try:
        while (item := _awaited(ours, child, confinement, is_over)) is not None:
            if isinstance(item, AutoMLError):
                raise item
            yield item
    finally:
        _end(child)
        ours.close()


def _awaited(
    pipe: Connection,
    child: ForkServerProcess,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool],
) -> object:
    """The child's answer. Raises AutoMLError where there will be none."""
    assert child.pid is not None
    ends = time.monotonic() + confinement.seconds
    while time.monotonic() < ends:
        ready = wait([pipe, child.sentinel], _LOOK_SECONDS)
        if pipe in ready:
            with suppress(EOFError):
                answer: object = pipe.recv()
                return answer
        if is_over():
            raise AutoMLError("nobody waits for it any more")
        if ready:
            raise AutoMLError(f"its process ended with {_how_it_ended(child)}")
        if memory_bytes(child.pid) > confinement.memory_bytes:
            most = confinement.memory_bytes / 1024**3
            raise AutoMLError(f"it took more than {most:.1f} GiB of main memory")
    raise AutoMLError(f"it took longer than {confinement.seconds:g} s")


def _how_it_ended(child: ForkServerProcess) -> str:
    child.join()
    code = abs(child.exitcode or 0)
    return how_it_ended(code if code < SIGNALLED else SIGNALLED - code)


def _end(child: ForkServerProcess) -> None:
    """End a confined process with all that it started. It supervises only, and starts no more."""
    assert child.pid is not None
    kill_descendants(child.pid)
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


def _answer_confined(
    entry: ProcessEntry, confinement: ProcessConfinement, pipe: Connection
) -> None:
    run_confined(confinement, partial(_answer, entry, pipe))


def _stream_confined(
    entry: ProcessEntry, confinement: ProcessConfinement, pipe: Connection
) -> None:
    run_confined(confinement, partial(_answer, entry, pipe, streams=True))


def _answer(entry: ProcessEntry, pipe: Connection, *, streams: bool = False) -> None:
    """The answer, or where it comes in pieces each of them, and None after the last."""
    leave_to_sweep()
    try:
        answer = resolve_entry(entry.target)(entry.config)
        if streams:
            for item in answer:
                pipe.send(item)
        pipe.send(None if streams else answer)
    except AutoMLError as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
        pipe.send(AutoMLError("".join(traceback.format_exception_only(error)).strip()))
