"""What shows a running sweep: the live table in a terminal, plain lines elsewhere.

A notebook has its own (`notebook.py`).
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.text import Text

from automl.record.texts import fit
from automl.running.console import open_console
from automl.running.notebook import NotebookDisplay, in_notebook
from automl.running.rendering import progress_line, render
from automl.running.view import SweepView

_PLAIN_SECONDS = 10.0
"""Plain output repeats the progress line at least this often while trials run."""


class Display(Protocol):
    """Shows a sweep's views as they come."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, view: SweepView) -> None: ...

    def say(self, line: str) -> None:
        """One line that stays."""

    def end(self) -> None:
        """No view follows; what is printed from now on stays."""


def open_display() -> Display:
    """The live table where stdout is a terminal or a notebook, else plain lines."""
    if in_notebook():
        return NotebookDisplay()
    console = open_console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """A table that is redrawn in place, and gone at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def show(self, view: SweepView) -> None:
        # A `^C` that the terminal shows behind the last line must not break that line in two: the
        # table would be erased one line too low.
        width = self._console.width - len("^C^C")
        self._live.update(Constrain(render(view), width), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(Text(fit(line)), soft_wrap=True)  # a path or command is copied whole

    def end(self) -> None:
        self._live.stop()


class PlainDisplay:
    """A line whenever a trial ended, and now and then while nothing does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._n_ended = 0
        self._last_seconds = 0.0

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def show(self, view: SweepView) -> None:
        news = view.n_ended > self._n_ended
        if news or view.seconds - self._last_seconds >= _PLAIN_SECONDS:
            self._n_ended, self._last_seconds = view.n_ended, view.seconds
            self.say(progress_line(view))

    def say(self, line: str) -> None:
        self._console.print(Text(fit(line)), soft_wrap=True)

    def end(self) -> None:
        pass
