"""Shows a running sweep: a live table in a terminal or notebook, plain lines elsewhere.

IPython is looked up and never loaded: in a notebook it is loaded already. The notebook's table is
one output that is replaced, because rich's own live display wants ipywidgets there.
"""

from __future__ import annotations

import io
import sys
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.text import Text

from automl.record.texts import fit_text
from automl.running.display.console import open_console
from automl.running.display.rendering import progress_line, render_view
from automl.running.display.view import SweepView

_COLUMNS = 110
_PRE = '<pre style="white-space:pre;line-height:1.2;font-family:monospace">{code}</pre>'


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookDisplay:
    """A display for notebooks: a table that is replaced in place, and gone at the end."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __enter__(self) -> NotebookDisplay:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def show(self, view: SweepView) -> None:
        self._put(_html(render_view(view)), progress_line(view))

    def say(self, line: str) -> None:
        sys.stdout.write(f"{fit_text(line)}\n")

    def end(self) -> None:
        if self._handle is not None:
            self._put("", "")

    def _put(self, html: str, text: str) -> None:
        from IPython.display import display, update_display

        shown = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            update_display(shown, raw=True, display_id=self._handle.display_id)  # type: ignore[no-untyped-call]


def _html(shown: Any) -> str:
    """Return what a terminal of `_COLUMNS` columns would show. Text from outside is escaped."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=_COLUMNS,
        force_jupyter=False,
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(shown)
    return console.export_html(inline_styles=True, code_format=_PRE)


_PLAIN_SECONDS = 10.0
"""Seconds after which plain output repeats the progress line while trials run."""


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
        """Print one line that stays."""

    def end(self) -> None:
        """Show no further view. What is printed from now on stays."""


def open_display() -> Display:
    """Return the live table if stdout is a terminal or a notebook, otherwise plain lines."""
    if in_notebook():
        return NotebookDisplay()
    console = open_console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """A display for terminals: a table that is redrawn in place, and gone at the end."""

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
        self._live.update(Constrain(render_view(view), width), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(
            Text(fit_text(line)), soft_wrap=True
        )  # a path or command is copied whole

    def end(self) -> None:
        self._live.stop()


class PlainDisplay:
    """A display for files: a line whenever a trial ends, and now and then in between."""

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
        self._console.print(Text(fit_text(line)), soft_wrap=True)

    def end(self) -> None:
        pass
