"""What shows a running sweep in a notebook: lines as ever, and the live table as one output.

IPython is looked for and never loaded: who runs in a notebook has it. (rich's own live display
wants ipywidgets there.)
"""

from __future__ import annotations

import io
import sys
from typing import Any

from rich.console import Console

from automl.record.texts import fit
from automl.running.rendering import progress_line, render
from automl.running.view import SweepView

_COLUMNS = 110
_PRE = '<pre style="white-space:pre;line-height:1.2;font-family:monospace">{code}</pre>'


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookDisplay:
    """A table that is replaced in place, and gone at the end. See `display.Display`."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __enter__(self) -> NotebookDisplay:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()

    def show(self, view: SweepView) -> None:
        self._put(_html(render(view)), progress_line(view))

    def say(self, line: str) -> None:
        sys.stdout.write(f"{fit(line)}\n")

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
    """As a terminal of so many columns would show it; what strangers wrote is escaped."""
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
