"""Reports a step of a command that may take long: its name, seconds so far, and total time.

It serves the steps before and after a sweep's trials, and commands that train nothing. The trials
themselves have their own display (`terminal/live_display.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from automl.errors import AutoMLError
from automl.record.texts import Say, say_on_stdout

BEAT_SECONDS = 10.0
"""Seconds between two lines of a step that goes on."""
WORTH_SAYING_SECONDS = 2.0
"""A step that took fewer seconds ends without a line."""


@dataclass
class LongStep:
    """A step that goes on, handed to the block that carries it out."""

    detail: Callable[[], str]

    def at(self, text: str) -> None:
        """Note the step's progress, for the lines that follow."""
        self.detail = lambda: text


@contextmanager
def long_step(
    name: str,
    say: Say = say_on_stdout,
    *,
    detail: Callable[[], str] = str,
    beat_seconds: float = BEAT_SECONDS,
    silent_seconds: float = 0.0,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[LongStep]:
    """Say `name` before the block, the seconds so far while it runs, and the total after it.

    The seconds so far are said every `beat_seconds`, with the progress that `detail` returns, such
    as `3 of 8`. With `silent_seconds`, a block that takes less says nothing. Both `detail` and
    `say` are called from a thread. A block that raises ends without a line.
    """
    if not silent_seconds:
        say(name)
    started, has_ended = now(), threading.Event()
    step = LongStep(detail)

    def report_progress() -> None:
        if silent_seconds:
            if has_ended.wait(silent_seconds):
                return
            say(name)
        while not has_ended.wait(beat_seconds):
            with suppress(OSError, AutoMLError):  # the main thread meets the same, and says it
                progress = step.detail()
                say(f"{name}: {now() - started:.0f} s so far{f', {progress}' * bool(progress)}")

    reporter = threading.Thread(target=report_progress, name="long-step", daemon=True)
    reporter.start()
    try:
        yield step
    finally:
        has_ended.set()
        reporter.join()
    if (seconds := now() - started) >= WORTH_SAYING_SECONDS:
        say(f"{name}: done in {seconds:.1f} s")
