"""A step of a command that may take long: announced, followed by the seconds, ended by its time.

A sweep's trials have their own display (`running/display/live_display.py`); this is for what is
done before and after them, and for commands that train nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from automl.record.texts import Say, say_on_stdout

BEAT_SECONDS = 10.0
"""Between two lines of a step that goes on."""
WORTH_SAYING_SECONDS = 2.0
"""A step that took less ends without a line."""


@dataclass
class LongStep:
    """A step that goes on; given to the block that does it."""

    detail: Callable[[], str]

    def at(self, text: str) -> None:
        """Note how far the step is, for the lines that follow."""
        self.detail = lambda: text


@contextmanager
def long_step(
    name: str,
    say: Say = say_on_stdout,
    *,
    detail: Callable[[], str] = str,
    beat_seconds: float = BEAT_SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[LongStep]:
    """Say `name` before the block, its seconds so far every `beat_seconds` while it runs, and its
    seconds in all after it. `detail` tells how far it is, such as `3 of 8`; it is called from a
    thread, and so is `say`. A block that raises ends without a line.
    """
    say(name)
    begun, over = now(), threading.Event()
    step = LongStep(detail)

    def beat() -> None:
        while not over.wait(beat_seconds):
            told = step.detail()
            with suppress(OSError):  # nobody reads; the main thread finds that out by itself
                say(f"{name}: {now() - begun:.0f} s so far{f', {told}' * bool(told)}")

    beating = threading.Thread(target=beat, name="long-step", daemon=True)
    beating.start()
    try:
        yield step
    finally:
        over.set()
        beating.join()
    if (seconds := now() - begun) >= WORTH_SAYING_SECONDS:
        say(f"{name}: done in {seconds:.1f} s")
