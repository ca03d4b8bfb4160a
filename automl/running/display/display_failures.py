"""Lets a sweep go on if what only shows it fails: the display, the status file, stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from automl.record.texts import say_on_stdout

if TYPE_CHECKING:  # commands that only print need `mute_stream` alone
    from automl.running.display.live_display import Display
    from automl.running.display.view import SweepView

logger = logging.getLogger(__name__)


class ViewFailureLog:
    """Logs failures to show one sweep, each cause once."""

    def __init__(self) -> None:
        self._logged_texts: set[str] = set()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Log an error of the block in `sweep.log`, and on screen if there still is one."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no decision depends on a display
            cause = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            text = f"{name} cannot be shown ({cause}); the sweep goes on"
            if text not in self._logged_texts:
                self._logged_texts.add(text)
                logger.warning("%s", text)


class UnfailingDisplay:
    """A display whose failures do not stop the sweep."""

    def __init__(self, display: Display, view_failures: ViewFailureLog) -> None:
        self._display, self._view_failures = display, view_failures

    def __enter__(self) -> UnfailingDisplay:
        with self._shown():
            self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._shown():
            self._display.__exit__(kind, error, trace)

    def show(self, view: SweepView) -> None:
        with self._shown():
            self._display.show(view)

    def say(self, line: str) -> None:
        with self._shown():
            self._display.say(line)

    def end(self) -> None:
        with self._shown():
            self._display.end()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        with self._view_failures.of("the display"):
            try:
                yield
            except OSError:  # the reader of stdout has gone, or the disk of a file is full
                mute_stream(sys.stdout)
                raise


def say_unfailing(line: str) -> None:
    """Write a line to stdout at once. If stdout has no reader any more, the work goes on."""
    try:
        say_on_stdout(line)
    except OSError:
        mute_stream(sys.stdout)


def mute_stream(stream: TextIO) -> None:
    """Discard what is written to the stream from now on, and what waits in its buffer."""
    with suppress(OSError, ValueError):  # closed, or no file at all: there is nothing to mute
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
