"""What shows the work and is none of it: where that fails, the work goes on."""

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
    """Notes pictures of one sweep that could not be taken, each cause once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What fails in the block is said in `sweep.log`, and on screen if there is one left."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody decides by a picture
            cause = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            text = f"{name} cannot be shown ({cause}); the sweep goes on"
            if text not in self._said:
                self._said.add(text)
                logger.warning("%s", text)


class UnfailingDisplay:
    """A display that nobody may be looking at any more."""

    def __init__(self, display: Display, pictures: ViewFailureLog) -> None:
        self._display, self._pictures = display, pictures

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
        with self._pictures.of("the display"):
            try:
                yield
            except OSError:  # whoever read it has gone, or the disk of a file is full
                mute_stream(sys.stdout)
                raise


def say_unfailing(line: str) -> None:
    """Write a line to stdout, at once; where nobody reads stdout any more the work goes on."""
    try:
        say_on_stdout(line)
    except OSError:
        mute_stream(sys.stdout)


def mute_stream(stream: TextIO) -> None:
    """From now on what is written to it goes nowhere, what waits in its buffer included."""
    with suppress(OSError, ValueError):  # closed, or no file at all: there is nothing to mute
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
