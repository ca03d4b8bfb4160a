"""Defines what a report consists of: sections with a sentence, pictures, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automl.record.texts import fit_line


@dataclass(frozen=True)
class TableRow:
    """A row of a table, and the part (0 to 1) that a bar behind its last cell shows, if any."""

    cells: tuple[str, ...]
    bar: float | None = None


@dataclass(frozen=True)
class ReportTable:
    """A table of a section."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    title: str = ""
    n_text: int = 1
    """Number of columns, from the left, that hold text; the others hold numbers."""
    is_folded: bool = False
    """Whether the table is shown only on demand, since a picture says the same."""


@dataclass(frozen=True)
class ReportSection:
    """A section of the page."""

    key: str
    """Its anchor in the page."""
    title: str
    sentences: tuple[str, ...]
    """What the section's picture means, the most important first."""
    charts: tuple[str, ...] = ()
    """The pictures, each as the text of an SVG."""
    tables: tuple[ReportTable, ...] = ()
    lines: tuple[str, ...] = ()
    """What the coloured lines of the pictures are, in the order of their colours."""
    commands: tuple[tuple[str, str], ...] = ()
    """Commands to copy, each with what it does."""
    has_trials: bool = False
    """Whether the table of all trials stands here."""


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    n_text: int = 1,
    folded: bool = False,
    bars: Sequence[float | None] = (),
) -> ReportTable:
    """Return a table of texts; `bars` has a part (0 to 1) for each row."""
    shares = [*bars, *[None] * (len(rows) - len(bars))]
    made = [
        TableRow(tuple(fit_line(cell, 300).replace(" ± ", "\u00a0±\u00a0") for cell in row), share)
        for row, share in zip(rows, shares, strict=True)
    ]
    return ReportTable(tuple(columns), tuple(made), title, n_text, folded)
