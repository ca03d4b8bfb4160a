"""How wide the views are that trees take of a table (`tree_view.py`). No numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from automl.errors import AutoMLError

if TYPE_CHECKING:
    from automl.data.columns import Columns

MAX_COLUMNS = 2**15 - 1
"""Nodes name them by int16."""
FEW_KINDS = range(3, 65)
"""A category of so many kinds is spread: of two its code tells the same."""
MAX_SPREAD = 1024
"""Columns that all of them may become, else none is spread."""


def n_columns(columns: Columns) -> int:
    """F, the width of what `tree_view` gives."""
    return len(columns.all)


def spread(columns: Columns) -> list[int]:
    """Which of the categories `spread_view` spreads."""
    sizes = {i: column.n_codes for i, column in enumerate(columns.categories)}
    places = [i for i, size in sizes.items() if size in FEW_KINDS]
    return places if sum(sizes[i] for i in places) <= MAX_SPREAD else []


def n_spread_columns(columns: Columns) -> int:
    """F', the width of what `spread_view` gives."""
    return n_columns(columns) + sum(columns.categories[i].n_codes - 1 for i in spread(columns))


def check_width(width: int) -> None:
    """Raises AutoMLError for more columns than a node can name."""
    if width > MAX_COLUMNS:
        raise AutoMLError(
            f"{width:,} columns: trees take {MAX_COLUMNS:,} at most. Take fewer, or model=linear."
        )
