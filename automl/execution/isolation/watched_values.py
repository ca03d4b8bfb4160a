"""Lists the values that a trial may change in its process, and puts them back after the trial.

`WATCHED_VALUES` has one entry per value; watching another value takes one more entry and its test.
Values are put back in the order of the list, each exactly as it was before the trial. A value that
cannot be put back ends its worker (`trial_isolation.py`). No library is imported here: values of a
library are read only where it was imported.
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

# --- figures of matplotlib ---


def open_figures() -> frozenset[int]:
    """Return the numbers of the figures that matplotlib keeps open."""
    pyplot = _pyplot()
    return frozenset() if pyplot is None else frozenset(pyplot.get_fignums())


def put_back_figures(before: frozenset[int]) -> None:
    """Close new figures. Raise RuntimeError if the trial closed one that was open before."""
    for number in open_figures() - before:
        _pyplot().close(number)
    if open_figures() != before:
        raise RuntimeError("one that was open before the trial was closed")


def _pyplot() -> Any:
    return sys.modules.get("matplotlib.pyplot")


# --- loggers ---

LoggerSetup: TypeAlias = "tuple[tuple[logging.Handler, ...], int, bool, bool]"
"""Handlers of a logger, its level, whether it is disabled, and whether it propagates."""
_OURS = "automl"
"""The package's own logger, whose handlers are the sweep's. They may have ended when a trial in one
of the sweep's threads ends."""
_UNTOUCHED: LoggerSetup = ((), logging.NOTSET, False, True)


@dataclass(frozen=True)
class LoggerSetups:
    """Remembers how all loggers were set up at one moment."""

    setups: Mapping[str, LoggerSetup]
    """Set-ups by the logger's name, without the loggers that nobody has set up."""
    disabled: int
    """The level up to which `logging.disable` silences all loggers."""
    n_modules: int = field(compare=False)
    """Number of modules imported so far; `sys.modules` lists later ones behind them."""


def logger_setups() -> LoggerSetups:
    setups = {}
    for name, logger in _all_loggers():
        setup = tuple(logger.handlers), logger.level, logger.disabled, logger.propagate
        if setup != _UNTOUCHED:
            setups[name] = setup
    return LoggerSetups(setups, logging.root.manager.disable, len(sys.modules))


def put_back_logger_setups(before: LoggerSetups) -> None:
    """Set up all loggers as before, except the loggers of libraries imported since.

    A library stays imported and does not set up its loggers again in the next trial.
    """
    imported = {*islice(sys.modules, before.n_modules, None)}
    now = logger_setups().setups
    for name, logger in _all_loggers():
        setup = before.setups.get(name, _UNTOUCHED)
        if now.get(name, _UNTOUCHED) != setup and not _belongs_to(imported, name):
            _put_back_logger(logger, setup)
    if logging.root.manager.disable != before.disabled:
        logging.disable(before.disabled)


def _belongs_to(modules: set[str], name: str) -> bool:
    """Return whether a logger is named like one of these modules, or like a part of one."""
    return not modules.isdisjoint(accumulate(name.split("."), "{}.{}".format))


def _put_back_logger(logger: logging.Logger, setup: LoggerSetup) -> None:
    handlers, level, disabled, propagate = setup
    logger.handlers[:] = handlers
    logger.disabled, logger.propagate = disabled, propagate
    if logger.level != level:
        logger.setLevel(level)


def _all_loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield logging.root.name, logging.root
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name != _OURS:  # others are mere placeholders
            yield name, logger


# --- alarms and signals ---

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def get_alarms() -> tuple[bool, ...]:
    """Return for each kind of timer whether it is set."""
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def put_back_alarms(before: tuple[bool, ...]) -> None:
    for timer, was_set in zip(_TIMERS, before, strict=True):
        if not was_set:
            signal.setitimer(timer, 0)
    if get_alarms() != before:
        raise RuntimeError("one that was set before the trial is not any more")


_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def get_signal_handlers() -> tuple[Any, ...]:
    """Return the handlers in the order of `_SIGNALS`; none outside the main thread.

    Only the main thread may set a handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return ()
    return tuple(map(signal.getsignal, _SIGNALS))


def put_back_signal_handlers(before: tuple[Any, ...]) -> None:
    for number, handler, now in zip(_SIGNALS, before, get_signal_handlers(), strict=True):
        if now is not handler:
            signal.signal(number, handler)


def get_blocked_signals() -> set[int]:
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def put_back_blocked_signals(before: set[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- of the process and of Python ---


def get_working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def put_back_working_directory(before: str | None) -> None:
    if before is None:
        raise FileNotFoundError("it had been removed before the trial")
    os.chdir(before)


def get_environment() -> dict[str, str]:
    return dict(os.environ)


def put_back_environment(before: dict[str, str]) -> None:
    now = dict(os.environ)
    for name in now.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if now.get(name) != value:
            os.environ[name] = value


def get_start_method() -> str | None:
    """Return multiprocessing's start method, which may be set once; None before it is set."""
    return multiprocessing.get_start_method(allow_none=True)


def put_back_start_method(before: str | None) -> None:
    multiprocessing.set_start_method(before, force=True)


class SysList:
    """A list of `sys`, like `sys.SYS_PATH`: the list object itself is restored, and its items."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self) -> tuple[int, list[str], tuple[str, ...]]:
        found = getattr(sys, self._name)
        return id(found), found, tuple(found)

    def put_back(self, before: tuple[int, list[str], tuple[str, ...]]) -> None:
        _, list_object, items = before
        list_object[:] = items
        setattr(sys, self._name, list_object)


SYS_ARGV, SYS_PATH = SysList("argv"), SysList("path")


@dataclass(frozen=True)
class WatchedValue:
    """A value of this process, or of the calling thread, that is put back after a trial."""

    name: str
    """Name of the value for people to read."""
    get: Callable[[], Any]
    put_back: Callable[[Any], None]
    """Restores the value that `get` returned before the trial. Raises where it cannot."""
    own_thread: bool = False
    """Whether each thread has a value of its own."""


WATCHED_VALUES = (
    WatchedValue("alarms", get_alarms, put_back_alarms),  # before one rings
    WatchedValue("signal handlers", get_signal_handlers, put_back_signal_handlers),
    WatchedValue("blocked signals", get_blocked_signals, put_back_blocked_signals, True),
    WatchedValue(
        "default dtype", torch_values.DEFAULT_DTYPE.get, torch_values.DEFAULT_DTYPE.put_back
    ),
    WatchedValue(
        "default device",
        torch_values.DEFAULT_DEVICE.get,
        torch_values.DEFAULT_DEVICE.put_back,
        True,
    ),
    WatchedValue(
        "modes of torch", torch_values.TORCH_MODES.get, torch_values.TORCH_MODES.put_back, True
    ),
    WatchedValue(
        "threads of torch", torch_values.TORCH_THREADS.get, torch_values.TORCH_THREADS.put_back
    ),
    WatchedValue("grad mode", torch_values.GRAD_MODE.get, torch_values.GRAD_MODE.put_back, True),
    WatchedValue("autocast", torch_values.AUTOCAST.get, torch_values.AUTOCAST.put_back, True),
    WatchedValue(
        "anomaly detection",
        torch_values.ANOMALY_DETECTION.get,
        torch_values.ANOMALY_DETECTION.put_back,
    ),
    WatchedValue(
        "deterministic flags",
        torch_values.DETERMINISTIC_FLAGS.get,
        torch_values.DETERMINISTIC_FLAGS.put_back,
    ),
    WatchedValue(
        "float32 precision",
        torch_values.FLOAT32_PRECISION.get,
        torch_values.FLOAT32_PRECISION.put_back,
    ),
    # After torch's values: putting them back may import more of torch, which sets variables.
    WatchedValue("working directory", get_working_directory, put_back_working_directory),
    WatchedValue("environment", get_environment, put_back_environment),
    WatchedValue("sys.argv", SYS_ARGV.get, SYS_ARGV.put_back),
    WatchedValue("sys.path", SYS_PATH.get, SYS_PATH.put_back),
    WatchedValue(
        "start method of multiprocessing",
        get_start_method,
        put_back_start_method,
    ),
    WatchedValue("logging", logger_setups, put_back_logger_setups),
    WatchedValue("figures of matplotlib", open_figures, put_back_figures),
)

Values: TypeAlias = Mapping[str, Any]
"""Values by the name of their `WatchedValue`."""


def watched_values(watched: Sequence[WatchedValue] = WATCHED_VALUES) -> Values:
    """Return the present values of the entries."""
    return {w.name: w.get() for w in watched}


def put_back_watched_values(before: Values) -> Sequence[str]:
    """Put back the values that differ; return, for people to read, which failed and why."""
    failed = []
    for watched in (w for w in WATCHED_VALUES if w.name in before):
        try:
            if watched.get() != before[watched.name]:
                watched.put_back(before[watched.name])
        except BaseException as error:  # noqa: BLE001  whatever a library or the user's object raises
            failed.append(f"{watched.name} ({type(error).__name__}: {error})")
    return failed
