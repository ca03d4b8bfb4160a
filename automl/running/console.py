"""Where commands print: tables and lines, with nothing that a stranger wrote taken for markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_ANY_WIDTH = 10_000
_GAP = 2
"""Blanks between two columns of a table."""


class CommandConsole(Console):
    """rich ends the program when whoever reads stdout has gone; here that is the caller's to do."""

    def on_broken_pipe(self) -> None:
        raise

    def say(self, text: str, style: str = "") -> None:
        """Lines, however long: a path or a command in them is copied whole."""
        self.print(Text(text, style), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int = 1
    ) -> None:
        """The first `n_left` columns begin at the left, the others are figures.

        A row is a line; on a screen that has no room for it, cells are broken.
        """
        widths = _widths(columns, rows)
        if self.is_terminal and sum(widths) + _GAP * (len(widths) - 1) > self.width:
            self.print(_broken_to_fit(columns, rows, n_left))
            return
        self.say(_line(columns, widths, n_left), "bold")
        self.say("\n".join(_line(row, widths, n_left) for row in rows))  # rich's: 0.5 ms a row

    def width_of(self, shown: RenderableType) -> int:
        """Columns that it would take if there were room."""
        unbounded = self.options.update_width(_ANY_WIDTH)
        return self.measure(shown, options=unbounded).maximum


def open_console() -> CommandConsole:
    """On stdout."""
    return CommandConsole(highlight=False, markup=False, emoji=False)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int = 1) -> list[str]:
    """The lines of a table, for those who print lines; see `CommandConsole.table`."""
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
