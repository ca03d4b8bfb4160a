"""Watched values of the process and of Python itself; the list is in `watched.py`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

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


class List:
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


argv, path = List("argv"), List("path")
