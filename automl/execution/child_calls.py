"""Calls functions in child processes: one call, an answering process, and confined calls.

A child process spares the parent the imports that an answer needs (`call_in_child`,
`AnsweringProcess`). A confined process (`call_confined`, `stream_confined`) runs code that nobody
vouches for: its time, memory and file sizes are limited, and nothing of it is left when the call is
over. The started process then only supervises, and a child of its own runs the code. Everything
that this child starts, daemons included, is reparented to the supervisor, their subreaper, and is
ended with it.

Trials do not run here, but in workers (`worker.py`).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
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
    process_tree_bytes,
)
from automl.execution.worker_process import FORK_SERVER_CONTEXT, start_forked_child
from automl.record.stop_signals import ignore_stop_signals
from automl.record.texts import exit_status_text
from automl.trial import ProcessEntry

_NICENESS = 10
"""Niceness of an answering process, so that trials get the cores first."""


class NoAnswerError(Exception):
    """Raised when the process has ended, so that there is no answer, now or later."""


class AnsweringProcess:
    """A child process that answers one question after another, for one thread, which need not wait.

    The entry's function returns, for the entry's config, the function that answers. It may keep
    state from one question to the next.
    """

    def __init__(self, entry: ProcessEntry) -> None:
        """Start the process. Raises AutoMLError where none can be started."""
        self._pipe, theirs = FORK_SERVER_CONTEXT.Pipe()
        self._child = start_forked_child("automl-answers", _serve, entry, theirs)
        theirs.close()
        self.busy = False
        """Whether the process works at a question, or has an answer that was not taken."""

    def ask(self, question: object) -> None:
        """Send a question. Raises NoAnswerError."""
        assert not self.busy, "one question after another"
        try:
            self._pipe.send(question)
        except OSError as error:
            raise NoAnswerError from error
        self.busy = True

    def poll(self) -> object | None:
        """Return the answer; None while it is not there.

        Raises NoAnswerError, or the AutoMLError that answering has raised.
        """
        return self._receive() if self.busy and self._pipe.poll() else None

    def answer(self, question: object) -> object:
        """Ask, wait, and return the answer; an answer to an earlier question is dropped first.

        Raises the same errors as `poll`.
        """
        if self.busy:
            with suppress(AutoMLError):
                self._receive()
        self.ask(question)
        return self._receive()

    def end(self) -> None:
        """Kill the process at once, even while it works at a question."""
        self._child.kill()
        self._child.join()
        self._pipe.close()

    def _receive(self) -> object:
        try:
            answer: object = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise NoAnswerError from error
        self.busy = False
        if isinstance(answer, AutoMLError):
            raise answer
        return answer


def _serve(entry: ProcessEntry, pipe: Connection) -> None:
    """Answer questions until the asking process closes the pipe."""
    ignore_stop_signals()
    os.nice(_NICENESS)
    answer_question: Callable[[object], object] | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            question = pipe.recv()
            try:
                answer_question = answer_question or resolve_entry(entry.target)(entry.config)
                answer = answer_question(question)
            except AutoMLError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
                answer = AutoMLError("".join(traceback.format_exception_only(error)).strip())
            pipe.send(answer)


SIGNAL_STATUS_OFFSET = 128
"""Offset that is added to a signal's number in an exit status, as shells do."""


@dataclass(frozen=True)
class ProcessConfinement:
    """Limits what a confined process may take, and sets its environment."""

    seconds: float = 30.0
    memory_bytes: int = 4 * 1024**3
    """Main memory of the process and all that it starts."""
    file_bytes: int = 1024**3
    """Size of the largest file that the process may write."""
    niceness: int = 10
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables to change in the process; None unsets one."""


def _run_confined(confinement: ProcessConfinement, run: Callable[[], None]) -> NoReturn:
    """Call `run` in a child of this process, end all that it started, and exit with its status."""
    die_with_parent()
    ignore_stop_signals()
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _confine(confinement)
            run()
            status = 0
        finally:
            os._exit(status)  # without waiting for threads, and without calling exit hooks
    status = _wait_for(pid)
    kill_descendants(os.getpid())
    os._exit(status)


def _wait_for(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_STATUS_OFFSET - code


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


def _limit(limited_resource: int, maximum: int) -> None:
    _, hard = resource.getrlimit(limited_resource)
    maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(limited_resource, (maximum, maximum))


def _data_bytes() -> int:
    """Return the private memory of this process, which it was forked with (Linux; else 0)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("VmData:")), 0)


def _close_streams() -> None:
    """Point the standard streams at the null device: no input, and output is discarded."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null_fd, fd)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  until the process ends
    sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def call_in_child(entry: ProcessEntry) -> object:
    """Return what the entry's function returns for its config, both of them picklable.

    An AutoMLError raised in the child is raised here; a child that dies is a ConfigError. Ctrl-C
    during the wait ends the child, too.
    """
    ours, theirs = FORK_SERVER_CONTEXT.Pipe(duplex=False)
    child = start_forked_child("automl-question", _answer, entry, theirs)
    theirs.close()
    try:
        answer: object = ours.recv()
    except EOFError:
        child.join()
        how = exit_status_text(child.exitcode or 0)
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
"""Interval at which the main memory of a confined process is measured."""


def call_confined(
    entry: ProcessEntry,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool] = lambda: False,
) -> object:
    """Return what the entry's function returns for its config, in a confined process.

    Nothing of the process is left when this returns. An AutoMLError raised in the process is raised
    here. AutoMLError also tells how the process ended, which limit it exceeded, or that nobody
    waits for the answer any more: `is_over` is called ten times a second.
    """
    with closing(_confined_items(entry, confinement, is_over)) as items:
        return next(items)


def stream_confined(
    entry: ProcessEntry,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool] = lambda: False,
) -> Generator[object, None, None]:
    """Yield what the entry's function yields for its config, as it comes; no item may be None.

    Limits and errors are the same as for `call_confined`, except that the time limit counts from
    one item to the next. Close the generator, or use it up: its process lives until then.
    """
    return _confined_items(entry, confinement, is_over, streams=True)


def _confined_items(
    entry: ProcessEntry,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool],
    *,
    streams: bool = False,
) -> Generator[object, None, None]:
    """Yield what a confined process sends; the process ends with the generator."""
    ours, theirs = FORK_SERVER_CONTEXT.Pipe(duplex=False)
    run = partial(_answer, entry, theirs, streams=streams)
    child = start_forked_child("automl-confined", _run_confined, confinement, run)
    theirs.close()
    try:
        while True:
            item = _wait_for_item(ours, child, confinement, is_over)
            if isinstance(item, AutoMLError):
                raise item
            if streams and item is None:
                return
            yield item
    finally:
        _end(child)
        ours.close()


def _wait_for_item(
    pipe: Connection,
    child: ForkServerProcess,
    confinement: ProcessConfinement,
    is_over: Callable[[], bool],
) -> object:
    """Return the child's next answer. Raises AutoMLError where there will be none."""
    assert child.pid is not None
    deadline = time.monotonic() + confinement.seconds
    while time.monotonic() < deadline:
        ready = wait([pipe, child.sentinel], _LOOK_SECONDS)
        if pipe in ready:
            with suppress(EOFError):
                answer: object = pipe.recv()
                return answer
        if is_over():
            raise AutoMLError("nobody waits for it any more")
        if ready:
            raise AutoMLError(f"its process ended with {_how_it_ended(child)}")
        if process_tree_bytes(child.pid) > confinement.memory_bytes:
            limit_gib = confinement.memory_bytes / 1024**3
            raise AutoMLError(f"it took more than {limit_gib:.1f} GiB of main memory")
    raise AutoMLError(f"it took longer than {confinement.seconds:g} s")


def _how_it_ended(child: ForkServerProcess) -> str:
    child.join()
    code = abs(child.exitcode or 0)
    return exit_status_text(code if code < SIGNAL_STATUS_OFFSET else SIGNAL_STATUS_OFFSET - code)


def _end(child: ForkServerProcess) -> None:
    """End a confined process and all its descendants.

    The process itself only supervises, and starts no others meanwhile.
    """
    assert child.pid is not None
    kill_descendants(child.pid)
    with suppress(ProcessLookupError):  # the process has ended
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


def _answer(entry: ProcessEntry, pipe: Connection, *, streams: bool = False) -> None:
    """Send the answer; where it is streamed, send each item, and None after the last."""
    ignore_stop_signals()
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
