"""The list of watched values: what a trial may change in its process, and how it is put back.

One entry, one value; to watch another is one entry more, and its test. Values are put back in the
order of the list, each exactly as it was before the trial; a putting back that raises is one that
cannot be, and ends the process (`process.py`). Libraries are looked at where they were imported,
never imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from automl.execution.isolation import (
    figures,
    logging_values,
    python_values,
    torch_values,
)


@dataclass(frozen=True)
class Watched:
    """One value of this process, or of the thread that asks."""

    name: str
    """For people."""
    get: Callable[[], Any]
    put_back: Callable[[Any], None]
    """Takes what `get` returned before the trial. Raises where it cannot be put back."""
    own_thread: bool = False
    """Each thread has one of its own."""


WATCHED = (
    Watched("alarms", python_values.alarms, python_values.put_back_alarms),  # before one rings
    Watched("signal handlers", python_values.handlers, python_values.put_back_handlers),
    Watched("blocked signals", python_values.blocked, python_values.put_back_blocked, True),
    Watched("default dtype", torch_values.dtype.get, torch_values.dtype.put_back),
    Watched("default device", torch_values.device.get, torch_values.device.put_back, True),
    Watched("modes of torch", torch_values.modes.get, torch_values.modes.put_back, True),
    Watched("threads of torch", torch_values.threads.get, torch_values.threads.put_back),
    Watched("grad mode", torch_values.grad.get, torch_values.grad.put_back, True),
    Watched("autocast", torch_values.autocast.get, torch_values.autocast.put_back, True),
    Watched("anomaly detection", torch_values.anomaly.get, torch_values.anomaly.put_back),
    Watched("deterministic flags", torch_values.flags.get, torch_values.flags.put_back),
    Watched("float32 precision", torch_values.precision.get, torch_values.precision.put_back),
    # After torch's: what is put back there may import more of it, which sets variables.
    Watched("working directory", python_values.folder, python_values.put_back_folder),
    Watched("environment", python_values.environment, python_values.put_back_environment),
    Watched("sys.argv", python_values.argv.get, python_values.argv.put_back),
    Watched("sys.path", python_values.path.get, python_values.path.put_back),
    Watched(
        "start method of multiprocessing",
        python_values.start_method,
        python_values.put_back_start_method,
    ),
    Watched("logging", logging_values.get, logging_values.put_back),
    Watched("figures of matplotlib", figures.get, figures.put_back),
)

Values: TypeAlias = Mapping[str, Any]
"""By the name of what is watched."""


def values(watched: Sequence[Watched] = WATCHED) -> Values:
    """What is so now."""
    return {w.name: w.get() for w in watched}


def put_back(before: Values) -> Sequence[str]:
    """Put back what differs; what cannot be, and why, in words for people."""
    failed = []
    for watched in (w for w in WATCHED if w.name in before):
        try:
            if watched.get() != before[watched.name]:
                watched.put_back(before[watched.name])
        except BaseException as error:  # noqa: BLE001  whatever a library or the user's object raises
            failed.append(f"{watched.name} ({type(error).__name__}: {error})")
    return failed
