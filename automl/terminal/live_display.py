"""Shows a running sweep: a live table in a terminal or notebook, plain lines elsewhere.

If the display fails, the sweep goes on (`UnfailingDisplay`). IPython is looked up and never loaded:
in a notebook it is loaded already. The notebook's table is one output that is replaced, because
rich's own live display wants ipywidgets there.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.text import Text

from automl.record.texts import fit_text, mute_stream
from automl.terminal.console import PrintableConsole, open_console, writes_to_notebook
from automl.terminal.rendering import progress_line, render_view
from automl.terminal.view import SweepView

logger = logging.getLogger(__name__)

_COLUMNS = 110
_PLAIN_SECONDS = 10.0
"""Seconds after which plain output repeats the progress line while trials run."""
_PRE = '<pre style="white-space:pre;line-height:1.2;font-family:monospace">{code}</pre>'


class Display(Protocol):
    """Shows a sweep's views as they come."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def show(self, view: SweepView) -> None: ...

    def say(self, line: str) -> None:
        """Print one line that stays."""

    def end(self) -> None:
        """Show no further view. What is printed from now on stays."""
        return None  # there is nothing to end


class PlainDisplay(Display):
    """A display for files: a line whenever a trial ends, and now and then in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._n_ended = 0
        self._last_seconds = 0.0

    def show(self, view: SweepView) -> None:
        news = view.n_ended > self._n_ended
        if news or view.seconds - self._last_seconds >= _PLAIN_SECONDS:
            self._n_ended, self._last_seconds = view.n_ended, view.seconds
            self.say(progress_line(view))

    def say(self, line: str) -> None:
        # A path or a command is copied whole.
        self._console.print(Text(fit_text(line)), soft_wrap=True)


class LiveDisplay(PlainDisplay):
    """A display for terminals: a table that is redrawn in place, and gone at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def show(self, view: SweepView) -> None:
        # A `^C` that the terminal shows behind the last line must not break that line in two: the
        # table would be erased one line too low.
        width = self._console.width - len("^C^C")
        self._live.update(Constrain(render_view(view), width), refresh=True)

    def end(self) -> None:
        self._live.stop()


class NotebookDisplay(Display):
    """A display for notebooks: a table that is replaced in place. Of a sweep that has ended, the
    last one stays."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._stays = False

    def show(self, view: SweepView) -> None:
        self._stays = view.ended is not None
        self._put(_html(render_view(view)), progress_line(view))

    def say(self, line: str) -> None:
        sys.stdout.write(f"{fit_text(line)}\n")

    def end(self) -> None:
        if self._handle is not None and not self._stays:
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
    console = PrintableConsole(
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


def shows_live() -> bool:
    """Return whether stdout is a terminal or a notebook, in which a table can be redrawn."""
    return sys.stdout.isatty() or writes_to_notebook()


def open_display() -> Display:
    """Return the live table if stdout is a terminal or a notebook, otherwise plain lines."""
    if writes_to_notebook():
        return NotebookDisplay()
    console = open_console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


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


class UnfailingDisplay(Display):
    """A display whose failures do not stop the sweep."""

    def __init__(self, display: Display, view_failures: ViewFailureLog) -> None:
        self._display, self._view_failures = display, view_failures

    def __enter__(self) -> UnfailingDisplay:
        with self._shown():
            self._display.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        with self._shown():
            self._display.__exit__(*raised)

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
