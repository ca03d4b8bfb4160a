"""Where commands print: tables and lines, with nothing that a stranger wrote taken for markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_ANY_WIDTH = 10_000


class CommandConsole(Console):
    """rich ends the program when whoever reads stdout has gone; here that is the caller's to do."""

    def on_broken_pipe(self) -> None:
        raise

    def say(self, text: str, style: str = "") -> None:
        """One line, however long: a path or a command in it is copied whole."""
        self.print(Text(text, style), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, n_left: int = 1
    ) -> None:
        """The first `n_left` columns begin at the left, the others are figures.

        In a terminal cells are broken where there is no room; elsewhere a row is a line.
        """
        table = Table(box=None, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index < n_left else "right")
        for row in rows:
            table.add_row(*row)
        if not self.is_terminal:
            self.width = max(self.width, self.width_of(table))
        self.print(table)

    def width_of(self, shown: RenderableType) -> int:
        """Columns that it would take if there were room."""
        unbounded = self.options.update_width(_ANY_WIDTH)
        return self.measure(shown, options=unbounded).maximum


def open_console() -> CommandConsole:
    """On stdout."""
    return CommandConsole(highlight=False, markup=False, emoji=False)
