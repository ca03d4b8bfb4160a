"""One question answered in a child process, so that the parent need not import what it takes."""

from __future__ import annotations

import signal
import traceback
from multiprocessing.connection import Connection

from automl.errors import AutoMLError, ConfigError
from automl.execution.executor import resolve
from automl.execution.process import CONTEXT, start_child
from automl.trial import Entry


def call_in_child(entry: Entry) -> object:
    """What the entry's function returns for its config, both of them picklable.

    An AutoMLError raised there is raised here; a child that dies is a ConfigError.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = start_child("automl-question", _answer, entry, theirs)
    theirs.close()
    try:
        answer: object = ours.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise ConfigError(
            f"{entry.target}: the process that was to import the objective ended with {how}; its "
            "own words are above. Mend the module, or look into it with execution=inline."
        ) from None
    finally:
        ours.close()
    child.join()
    if isinstance(answer, AutoMLError):
        raise answer
    return answer


def _answer(entry: Entry, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pipe.send(resolve(entry.target)(entry.config))
    except AutoMLError as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001 - sent to the parent, which raises it
        pipe.send(AutoMLError("".join(traceback.format_exception_only(error)).strip()))
