"""Prints tables and lines of commands, and formats params and the names of devices.

Text from outside is never taken for markup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from automl.record.texts import printable_text, value_text
from automl.trial import FAMILY_PARAM, ROWS_PARAM, Params

_ANY_WIDTH = 10_000
_GAP = 2
"""Blanks between two columns of a table."""


class PrintableConsole(Console):
    """A console that shows � for each character that moves the cursor or turns text around."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_text(text), style, control)


class CommandConsole(PrintableConsole):
    """A console whose caller handles a broken pipe, at which rich would end the program."""

    def on_broken_pipe(self) -> None:
        raise

    def say(self, text: str, style: str = "") -> None:
        """Print lines, however long: a path or a command in them can be copied whole."""
        self.print(Text(text, style), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int = 1
    ) -> None:
        """Print a table. The first `n_left` columns are aligned left, the others are figures.

        A row is a line. On a terminal that is too narrow, cells are broken.
        """
        widths = _widths(columns, rows)
        if self.excess_width(columns, rows) > 0:
            self.print(_broken_to_fit(columns, rows, n_left))
            return
        self.say(_line(columns, widths, n_left), "bold")
        # A table of rich would take 0.5 ms a row.
        self.say("\n".join(_line(row, widths, n_left) for row in rows))

    def excess_width(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
        """Return by how many columns a table is too wide for the terminal; below 1: it fits."""
        widths = _widths(columns, rows)
        return sum(widths) + _GAP * (len(widths) - 1) - self.width if self.is_terminal else 0

    def width_of(self, shown: RenderableType) -> int:
        """Return the columns that `shown` would take with unlimited width."""
        unbounded = self.options.update_width(_ANY_WIDTH)
        return self.measure(shown, options=unbounded).maximum


def open_console(*, on_stderr: bool = False) -> CommandConsole:
    """Return a console on stdout, or on stderr for what must not stand in a command's output."""
    return CommandConsole(
        stderr=on_stderr,
        # By itself rich would show in the notebook what a caller redirects.
        force_jupyter=not on_stderr and writes_to_notebook(),
        # The terminal of `!automl …` in a notebook's cell would show each redrawn table anew.
        force_terminal=False if "JPY_PARENT_PID" in os.environ else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def writes_to_notebook() -> bool:
    """Return whether stdout is the output of a notebook's cell, and not redirected."""
    return type(sys.stdout).__module__.startswith("ipykernel.")


def aligned_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int = 1
) -> list[str]:
    """Return the lines of a table, as `CommandConsole.table` prints them."""
    widths = _widths(columns, rows)
    return [_line(row, widths, n_left) for row in (columns, *rows)]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]


def _line(cells: Sequence[str], widths: Sequence[int], n_left: int) -> str:
    padded = []
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        blanks = " " * (width - cell_len(cell))
        padded.append(cell + blanks if index < n_left else blanks + cell)
    return (" " * _GAP).join(padded).rstrip()


def _broken_to_fit(columns: Sequence[str], rows: Sequence[Sequence[str]], n_left: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < n_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def params_text(params: Params) -> str:
    """Return the params as `depth 3, lr 0.012`. With one of several families: `mlp: depth 3, lr
    0.012`."""
    family, n_rows = params.get(FAMILY_PARAM), params.get(ROWS_PARAM)
    own = {name: of for name, of in params.items() if name.startswith(f"{family}_")}
    others = params.keys() - own.keys() - {FAMILY_PARAM, ROWS_PARAM}
    if not own or others:
        return ", ".join(f"{name} {value_text(value)}" for name, value in params.items())
    shown = (f"{n.removeprefix(f'{family}_')} {value_text(value)}" for n, value in own.items())
    on = f" on {n_rows:,} rows" if isinstance(n_rows, int) else ""
    return f"{family}{on}: {', '.join(shown)}"


def short_device_name(device: str) -> str:
    """Shorten the name of a device: `NVIDIA H200 GPU-8f3a12b4-…` → `H200 GPU-8f3a12b4`."""
    text = re.sub(r"\b((?:GPU|MIG)-[0-9a-f]{8})[0-9a-f-]+", r"\1", device)
    return re.sub(r"^NVIDIA (GeForce )?", "", text)


def cell_width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return cell_len(text)


def cut_to_width(text: str, width: int) -> str:
    """Return `text` in one line of at most `width` columns."""
    line = Text(text)
    line.truncate(max(1, width), overflow="ellipsis")
    return line.plain
