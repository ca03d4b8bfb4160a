"""The list of watched values: what a trial may change in its process, and how it is put back.

One entry, one value; to watch another is one entry more, and its test. Values are put back in the
order of the list, each exactly as it was before the trial; a putting back that raises is one that
cannot be, and ends the process (`process.py`). Libraries are looked at where they were imported,
never imported here.

Figures that matplotlib keeps until they are closed: those of a trial end with it.

Loggers: their handlers and levels as they were before the trial.

Watched values of the process and of Python itself; the list is in `watched_values.py`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, TypeAlias

from automl.execution.isolation import torch_values


def get() -> frozenset[int]:
    """Their numbers."""
    pyplot = _pyplot()
    return frozenset() if pyplot is None else frozenset(pyplot.get_fignums())


def figures_put_back(before: frozenset[int]) -> None:
    """Close what is new. One that the trial closed cannot be opened again."""
    for number in get() - before:
        _pyplot().close(number)
    if get() != before:
        raise RuntimeError("one that was open before the trial was closed")


def _pyplot() -> Any:
    return sys.modules.get("matplotlib.pyplot")


Setup: TypeAlias = "tuple[tuple[logging.Handler, ...], int, bool, bool]"
"""Of a logger: handlers, level, whether it is disabled, and whether it passes on."""
_OURS = "automl"
"""Its handlers are the sweep's, which may have ended when a trial of its threads does."""
_AS_MADE: Setup = ((), logging.NOTSET, False, True)


@dataclass(frozen=True)
class LoggerSetups:
    """How loggers were set up."""

    setups: Mapping[str, Setup]
    """By name; those that are as they were made are left out."""
    disabled: int
    """Levels up to it are told by nobody."""
    n_modules: int = field(compare=False)
    """How many had been imported; those that came after stand behind them."""


def logging_values_get() -> LoggerSetups:
    setups = {}
    for name, logger in _all():
        setup = tuple(logger.handlers), logger.level, logger.disabled, logger.propagate
        if setup != _AS_MADE:
            setups[name] = setup
    return LoggerSetups(setups, logging.root.manager.disable, len(sys.modules))


def logging_values_put_back(before: LoggerSetups) -> None:
    """As they were; but what a library sets up as it is first imported stays, as the library does:
    the next trial does not import it again."""
    imported = {*islice(sys.modules, before.n_modules, None)}
    now = logging_values_get().setups
    for name, logger in _all():
        was = before.setups.get(name, _AS_MADE)
        if now.get(name, _AS_MADE) != was and not _is_of(imported, name):
            _put_back(logger, was)
    if logging.root.manager.disable != before.disabled:
        logging.disable(before.disabled)


def _is_of(modules: set[str], name: str) -> bool:
    """Whether a logger is one of these, or of what is in one of them."""
    return not modules.isdisjoint(accumulate(name.split("."), "{}.{}".format))


def _put_back(logger: logging.Logger, setup: Setup) -> None:
    handlers, level, disabled, propagate = setup
    logger.handlers[:] = handlers
    logger.disabled, logger.propagate = disabled, propagate
    if logger.level != level:
        logger.setLevel(level)


def _all() -> Iterator[tuple[str, logging.Logger]]:
    yield logging.root.name, logging.root
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name != _OURS:  # else it only holds a place
            yield name, logger


# --- alarms and signals ---

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def alarms() -> tuple[bool, ...]:
    """Which of them are set."""
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def put_back_alarms(before: tuple[bool, ...]) -> None:
    for timer, was_set in zip(_TIMERS, before, strict=True):
        if not was_set:
            signal.setitimer(timer, 0)
    if alarms() != before:
        raise RuntimeError("one that was set before the trial is not any more")


_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def handlers() -> tuple[Any, ...]:
    """By signal; only the main thread may say what one does."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    return tuple(map(signal.getsignal, _SIGNALS))


def put_back_handlers(before: tuple[Any, ...]) -> None:
    for number, was, now in zip(_SIGNALS, before, handlers(), strict=True):
        if now is not was:
            signal.signal(number, was)


def blocked() -> set[int]:
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def put_back_blocked(before: set[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- of the process and of Python ---


def folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def put_back_folder(before: str | None) -> None:
    if before is None:
        raise FileNotFoundError("it had been removed before the trial")
    os.chdir(before)


def environment() -> dict[str, str]:
    return dict(os.environ)


def put_back_environment(before: dict[str, str]) -> None:
    now = dict(os.environ)
    for name in now.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if now.get(name) != value:
            os.environ[name] = value


def start_method() -> str | None:
    """Which may be said once; None: it was not."""
    return multiprocessing.get_start_method(allow_none=True)


def put_back_start_method(before: str | None) -> None:
    multiprocessing.set_start_method(before, force=True)


class SysList:
    """A list of `sys`: which it is, and what it holds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self) -> tuple[int, list[str], tuple[str, ...]]:
        found = getattr(sys, self._name)
        return id(found), found, tuple(found)

    def put_back(self, before: tuple[int, list[str], tuple[str, ...]]) -> None:
        _, which, held = before
        which[:] = held
        setattr(sys, self._name, which)


argv, path = SysList("argv"), SysList("path")


@dataclass(frozen=True)
class WatchedValue:
    """One value of this process, or of the thread that asks."""

    name: str
    """For people."""
    get: Callable[[], Any]
    put_back: Callable[[Any], None]
    """Takes what `get` returned before the trial. Raises where it cannot be put back."""
    own_thread: bool = False
    """Each thread has one of its own."""


WATCHED = (
    WatchedValue("alarms", alarms, put_back_alarms),  # before one rings
    WatchedValue("signal handlers", handlers, put_back_handlers),
    WatchedValue("blocked signals", blocked, put_back_blocked, True),
    WatchedValue("default dtype", torch_values.dtype.get, torch_values.dtype.put_back),
    WatchedValue("default device", torch_values.device.get, torch_values.device.put_back, True),
    WatchedValue("modes of torch", torch_values.modes.get, torch_values.modes.put_back, True),
    WatchedValue("threads of torch", torch_values.threads.get, torch_values.threads.put_back),
    WatchedValue("grad mode", torch_values.grad.get, torch_values.grad.put_back, True),
    WatchedValue("autocast", torch_values.autocast.get, torch_values.autocast.put_back, True),
    WatchedValue("anomaly detection", torch_values.anomaly.get, torch_values.anomaly.put_back),
    WatchedValue("deterministic flags", torch_values.flags.get, torch_values.flags.put_back),
    WatchedValue("float32 precision", torch_values.precision.get, torch_values.precision.put_back),
    # After torch's: what is put back there may import more of it, which sets variables.
    WatchedValue("working directory", folder, put_back_folder),
    WatchedValue("environment", environment, put_back_environment),
    WatchedValue("sys.argv", argv.get, argv.put_back),
    WatchedValue("sys.path", path.get, path.put_back),
    WatchedValue(
        "start method of multiprocessing",
        start_method,
        put_back_start_method,
    ),
    WatchedValue("logging", logging_values_get, logging_values_put_back),
    WatchedValue("figures of matplotlib", get, figures_put_back),
)

Values: TypeAlias = Mapping[str, Any]
"""By the name of what is watched."""


def watched_values(watched: Sequence[WatchedValue] = WATCHED) -> Values:
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
