"""Ctrl-C, SIGTERM and a batch system's SIGUSR1 while a sweep runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from automl.running.display import Display
from automl.running.end import EXIT_CODES
from automl.running.messages import Message, Signalled, StopReason

NO_SIGNALS = "Ctrl-C and SIGTERM are not its business, and it ends with its trials"
REASONS = {
    signal.SIGINT: StopReason.INTERRUPTED,
    signal.SIGTERM: StopReason.TERMINATED,
    signal.SIGUSR1: StopReason.TERMINATED,
}
ECHO_SECONDS = 0.25
"""So soon after the first, a signal that no person types is the same one: `timeout` sends its own
to the program and then to the whole group."""


def in_main_thread() -> bool:
    """Whether signals can be heard here: Python tells them to the main thread alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def signals_as_messages(
    post: Callable[[Message], None],
    display: Display,
    how_they_stop: str,
    at_once: Callable[[], None] | None = None,
) -> Iterator[None]:
    """The first stops trials at their next report, the second calls `at_once`; without that it ends
    this process. For the main thread alone."""
    seen: list[int] = []
    first_at = 0.0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        now = time.monotonic()
        if seen and number != signal.SIGINT and now - first_at < ECHO_SECONDS:
            return
        first_at = first_at or now
        seen.append(number)
        if len(seen) > 1 and at_once is not None:
            at_once()
            return
        if len(seen) > 1:  # nothing is lost: what was recorded is on disk
            try:
                display.__exit__(None, None, None)
            finally:
                os._exit(EXIT_CODES[REASONS[signal.Signals(seen[0])]])
        post(Signalled(REASONS[signal.Signals(number)]))
        display.say(f"{signal.Signals(number).name}: {how_they_stop}; once more: at once")

    before = {number: signal.signal(number, on_signal) for number in REASONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
