"""A function as bytes for worker processes, by cloudpickle; the only module that knows it.

Also what is in a way: what of a function cannot be pickled, and what makes it large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from automl.cli.api.functions import name_of, values_of
from automl.errors import ConfigError
from automl.record.texts import fit_line

LARGE_BYTES = 64 * 1024**2
"""Each worker is sent so much, and keeps it; what is larger is said."""
_WORTH_NAMING_BYTES = 1024**2
_N_NAMED = 5


def pickled(function: Callable[..., Any]) -> bytes:
    """Raises ConfigError that names what of the function cannot be sent."""
    try:
        made: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise ConfigError(
            f"{name_of(function)} cannot be sent to worker processes: {_culprit(function, error)}. "
            "Make that inside the function, or train in this process with "
            'overrides=["execution=inline"].'
        ) from error
    return made


def size_notes(function: Callable[..., Any], n_bytes: int) -> tuple[str, ...]:
    """What a large function drags along, the largest first; nothing of one that is not large."""
    if n_bytes <= LARGE_BYTES:
        return ()
    sizes = {name: _n_bytes(value) for name, value in values_of(function)}
    large = sorted((n for n in sizes if sizes[n] >= _WORTH_NAMING_BYTES), key=sizes.__getitem__)
    named = ", ".join(f"{name} {_mib(sizes[name])}" for name in large[: -_N_NAMED - 1 : -1])
    return (
        f"{name_of(function)} takes {_mib(n_bytes)} along into each worker process"
        f"{f' ({named})' if named else ''}: read data inside of it, or from a file",
    )


def _culprit(function: Callable[..., Any], error: Exception) -> str:
    """The values that cannot be pickled by themselves, else what the whole said."""
    found = []
    for name, value in values_of(function):
        try:
            cloudpickle.dumps(value)
        except Exception as own:  # noqa: BLE001 - any object may raise anything
            found.append(f"{name} ({type(value).__name__}): {own}")
    return fit_line("; ".join(found) or f"{type(error).__name__}: {error}", 500)


def _n_bytes(value: object) -> int:
    try:
        return len(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001 - the whole was pickled: this is for people alone
        return 0


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 1024**2:.1f} MiB"
