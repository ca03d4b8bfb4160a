"""One question answered in a child process, so that the parent need not import what it takes."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

from automl.errors import AutoMLError, ConfigError
from automl.execution.confinement import SIGNALLED, Confinement, run_confined
from automl.execution.descendants import kill_descendants, memory_bytes
from automl.execution.executor import resolve
from automl.execution.process import CONTEXT, start_child
from automl.record.stopping import leave_to_sweep
from automl.record.texts import how_it_ended
from automl.trial import Entry


def call_in_child(entry: Entry) -> object:
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
    entry: Entry, confinement: Confinement, is_over: Callable[[], bool] = lambda: False
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
    entry: Entry, confinement: Confinement, is_over: Callable[[], bool] = lambda: False
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
    confinement: Confinement,
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


def _answer_confined(entry: Entry, confinement: Confinement, pipe: Connection) -> None:
    run_confined(confinement, partial(_answer, entry, pipe))


def _stream_confined(entry: Entry, confinement: Confinement, pipe: Connection) -> None:
    run_confined(confinement, partial(_answer, entry, pipe, streams=True))


def _answer(entry: Entry, pipe: Connection, *, streams: bool = False) -> None:
    """The answer, or where it comes in pieces each of them, and None after the last."""
    leave_to_sweep()
    try:
        answer = resolve(entry.target)(entry.config)
        if streams:
            for item in answer:
                pipe.send(item)
        pipe.send(None if streams else answer)
    except AutoMLError as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
        pipe.send(AutoMLError("".join(traceback.format_exception_only(error)).strip()))
