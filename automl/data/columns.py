"""What was learned of each column of a table, as values that go to plain ones and back.

No pandas and no scikit-learn: the generated set needs neither. `preprocessing.py` learns them and
reads frames by them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeAlias

from automl.data.readings import Reading, reading_of

MAX_CATEGORIES = 64
"""Features per category column at most, the one for rare categories included."""
FORMAT = "automl-columns-1"
"""Stands in the plain form; a change of its layout, or of what it means, is a new number."""
FORMAT_WITH_READINGS = "automl-columns-2"
"""The same with numbers that are made of cells; where there are none it is the first."""
FORMAT_WITH_CODES = "automl-columns-3"
"""The same with columns of codes; where there are none it is one of the other two."""


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
    made_of: str = ""
    """The table's column whose `Reading` makes it; empty: it is one itself."""
    part: str = ""
    """Which of the numbers that the reading makes."""


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts, one-hot encoded; the empty text stands for missing cells."""

    name: str
    categories: tuple[str, ...]
    """Each has a feature of its own."""
    has_other: bool
    """One more stands for rare categories, and for those not seen in training."""
    verbatim: bool = False
    """Categories are codes: cells belong to one only if they are written alike."""

    @property
    def n_codes(self) -> int:
        """Categories that are told apart; a cell that is none of them has this code."""
        return len(self.categories) + self.has_other


Column: TypeAlias = "NumberColumn | CategoryColumn"


@dataclass(frozen=True)
class Columns:
    """The columns that are learned from, in the table's order."""

    all: tuple[Column, ...]
    readings: tuple[Reading, ...] = ()
    """Of the table's columns that numbers are made of."""

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that are read, in its order."""
        return tuple(dict.fromkeys(source_of(column) for column in self.all))

    @cached_property
    def plain_numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers as they are."""
        return tuple(column.name for column in self.numbers if not column.made_of)

    @cached_property
    def numbers(self) -> tuple[NumberColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, NumberColumn))

    @cached_property
    def categories(self) -> tuple[CategoryColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, CategoryColumn))

    @cached_property
    def verbatim(self) -> tuple[str, ...]:
        """Names of the table's columns that hold codes."""
        of_categories = [column.name for column in self.categories if column.verbatim]
        of_readings = [reading.name for reading in self.readings if reading.verbatim]
        return tuple(dict.fromkeys((*of_categories, *of_readings)))

    def plain(self) -> dict[str, Any]:
        """As text, numbers, lists and dicts: what `weights_only` loading accepts."""
        plain = []
        for column in self.all:
            values = asdict(column)
            if isinstance(column, CategoryColumn):
                values["categories"] = list(column.categories)
                if not column.verbatim:
                    del values["verbatim"]
            elif not column.made_of:
                del values["made_of"], values["part"]
            plain.append(values)
        form = FORMAT_WITH_READINGS if self.readings else FORMAT
        form = FORMAT_WITH_CODES if self.verbatim else form
        readings = [reading.plain() for reading in self.readings]
        return {
            "format": form,
            "columns": plain,
            **({"readings": readings} if readings else {}),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Columns:
        """What `plain` took apart.

        Raises ValueError for another format, and TypeError or KeyError for what is no column: the
        file that they stand in may be a stranger's.
        """
        formats = (FORMAT, FORMAT_WITH_READINGS, FORMAT_WITH_CODES)
        if plain.get("format") not in formats:
            found = reprlib.repr(plain.get("format"))
            raise ValueError(f"preprocessing of format {found}: {', '.join(formats)} are read.")
        columns = tuple(map(_column, plain["columns"]))
        readings = tuple(map(reading_of, plain.get("readings", ())))
        makes = {reading.name: reading.parts for reading in readings}
        for column in columns:
            if isinstance(column, NumberColumn) and column.made_of:
                _check_made(column, makes[column.made_of])
        return cls(columns, readings)


def _column(plain: Mapping[str, Any]) -> Column:
    column: Column
    if "categories" in plain:
        column = CategoryColumn(**{**plain, "categories": tuple(plain["categories"])})
    else:
        column = NumberColumn(**plain)
    _check_kinds(column)
    return column


def _check_made(column: NumberColumn, parts: Sequence[str]) -> None:
    if column.part not in parts:
        raise ValueError(f"nothing makes the column {column.name[:50]!r}")


def _check_kinds(column: Column) -> None:
    """Raises TypeError where a value is not of the kind that the column says, ValueError for a
    scale that cannot be divided by."""
    names = (
        (column.name, column.made_of, column.part)
        if isinstance(column, NumberColumn)
        else (column.name,)
    )
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a column without a name")
    flag, *others = (
        (column.has_indicator, column.mean, column.scale, column.fill)
        if isinstance(column, NumberColumn)
        else (column.has_other, *column.categories)
    )
    kinds = (int, float) if isinstance(column, NumberColumn) else (str,)
    flags = (flag, getattr(column, "verbatim", False))
    if {*map(type, flags)} != {bool} or any(type(value) not in kinds for value in others):
        raise TypeError(f"the column {column.name[:50]!r} holds what no column does")
    if isinstance(column, NumberColumn) and not column.scale > 0:
        raise ValueError(f"the column {column.name[:50]!r} has no scale")


def source_of(column: Column) -> str:
    """The table's column that it is, or is made of."""
    return (column.made_of if isinstance(column, NumberColumn) else "") or column.name


def numbers_divided_by(scale: float, names: Sequence[str]) -> Columns:
    """Columns whose range is known beforehand, so that nothing has to be learned."""
    return Columns(
        tuple(
            NumberColumn(name, mean=0.0, scale=scale, fill=0.0, has_indicator=False)
            for name in names
        )
    )
