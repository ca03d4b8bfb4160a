"""What was learned of each column of a table, as values that go to plain ones and back.

No pandas and no scikit-learn: the generated set needs neither. `preprocessing.py` applies them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

FORMAT = "automl-columns-1"
"""Stands in the plain form; a change of its layout, or of what it means, is a new number."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: missing cells get `fill`, then all become (value - mean) / scale."""

    name: str
    mean: float
    scale: float
    fill: float
    """The median of the training part."""
    has_indicator: bool
    """A feature of its own says which cells are missing (some were in the training part)."""


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts, one-hot encoded; the empty text stands for missing cells."""

    name: str
    categories: tuple[str, ...]
    """Each has a feature of its own."""
    has_other: bool
    """One more feature stands for rare categories, and for those not seen in training."""


Column: TypeAlias = "NumberColumn | CategoryColumn"


def columns_to_plain(columns: Sequence[Column]) -> dict[str, Any]:
    """The columns as text, numbers, lists and dicts: what `weights_only` loading accepts."""
    plain = []
    for column in columns:
        values = asdict(column)
        if isinstance(column, CategoryColumn):
            values["categories"] = list(column.categories)
        plain.append(values)
    return {"format": FORMAT, "columns": plain}


def columns_from_plain(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns that `columns_to_plain` took apart.

    Raises ValueError for another format, and TypeError or KeyError for what is no column: the file
    that they stand in may be a stranger's.
    """
    if plain.get("format") != FORMAT:
        found = reprlib.repr(plain.get("format"))
        raise ValueError(f"preprocessing of format {found}: {FORMAT!r} is read.")
    columns: list[Column] = []
    for values in plain["columns"]:
        if "categories" in values:
            column: Column = CategoryColumn(**{**values, "categories": tuple(values["categories"])})
        else:
            column = NumberColumn(**values)
        _check_kinds(column)
        columns.append(column)
    return tuple(columns)


def _check_kinds(column: Column) -> None:
    """Raises TypeError where a value is not of the kind that the column says, ValueError for a
    scale that cannot be divided by."""
    if not isinstance(column.name, str):
        raise TypeError("a column without a name")
    flag, *others = (
        (column.has_indicator, *(column.mean, column.scale, column.fill))
        if isinstance(column, NumberColumn)
        else (column.has_other, *column.categories)
    )
    kinds = (int, float) if isinstance(column, NumberColumn) else (str,)
    if type(flag) is not bool or any(type(value) not in kinds for value in others):
        raise TypeError(f"the column {column.name[:50]!r} holds what no column does")
    if isinstance(column, NumberColumn) and not column.scale > 0:
        raise ValueError(f"the column {column.name[:50]!r} has no scale")


def numbers_divided_by(scale: float, names: Sequence[str]) -> tuple[NumberColumn, ...]:
    """Columns whose range is known beforehand, so that nothing has to be learned."""
    return tuple(
        NumberColumn(name, mean=0.0, scale=scale, fill=0.0, has_indicator=False) for name in names
    )
