"""The columns of a table for people: a row for each column, and lines for the start of a sweep.

Which kind a column has is decided in `column_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from automl.config import ColumnKind
from automl.data.column_kinds import PLAIN_NUMBERS_REASON, ColumnReading
from automl.data.columns import CategoryColumn, TableColumns, source_column

_MAX_NAMED = 10


class ColumnRow(NamedTuple):
    """A column of the table, as people see it."""

    name: str
    kind: str
    n_features: int
    """Number of features that a network gets from the column."""
    why: str
    """The reason for the kind, in words."""
    is_plain: bool = False
    """Whether the column simply holds numbers, so that there is nothing more to say."""


def column_overviews(
    columns: TableColumns, readings: Mapping[str, ColumnReading], giveaways: Sequence[str]
) -> list[ColumnRow]:
    """Return all columns in the table's order.

    `giveaways` names the columns that give the target away.
    """
    n_features = dict.fromkeys(readings, 0)
    for column in columns.all:
        own = column.n_codes if isinstance(column, CategoryColumn) else 1 + column.has_indicator
        n_features[source_column(column)] += own
    return [
        ColumnRow(
            name,
            *_kind(column_reading, n_features[name]),
            f"{_why(column_reading, n_features[name])}{_GIVEAWAY_NOTE * (name in giveaways)}",
            column_reading.why == PLAIN_NUMBERS_REASON
            and n_features[name] > 0
            and name not in giveaways,
        )
        for name, column_reading in readings.items()
    ]


_GIVEAWAY_NOTE = "; gives the target away"


def _why(column_reading: ColumnReading, n_features: int) -> str:
    left_out = column_reading.kind is not ColumnKind.drop and n_features == 0
    is_plain = column_reading.why == PLAIN_NUMBERS_REASON
    return "constant or empty" if left_out and is_plain else column_reading.why


def _kind(column_reading: ColumnReading, n_features: int) -> tuple[str, int]:
    left_out = column_reading.kind is not ColumnKind.drop and n_features == 0
    return ("left out" if left_out else column_reading.kind.value), n_features


def column_notes(
    columns: TableColumns, readings: Mapping[str, ColumnReading], giveaways: Sequence[str]
) -> list[str]:
    """Return the lines about columns that a sweep begins with.

    `giveaways` names the columns that give the target away.
    """
    dropped = [name for name, r in readings.items() if r.kind is ColumnKind.drop and r.is_new]
    by_user = [name for name, r in readings.items() if r.kind is ColumnKind.drop and not r.is_new]
    used = set(columns.sources)
    silent = [n for n, r in readings.items() if r.kind is not ColumnKind.drop and n not in used]
    lines = [
        *_line("left out, being row numbers or identifiers", dropped, _KEEP_REMEDY),
        *_line("left out, as data.columns says", by_user),
        *_line("left out, being constant, empty, or texts that do not repeat", silent),
    ]
    made = {r.name: readings[r.name] for r in columns.readings}
    for word, kind in (("dates", "date"), ("texts", "text"), ("numbers in texts", "number")):
        names = [name for name, r in made.items() if r.reading and r.reading.kind == kind]
        lines += _line(f"taken as {word}", names, _OTHER_KIND_REMEDY)
    frequent = [name for name, r in made.items() if r.reading and r.reading.kind == "frequency"]
    grouped = [c.name for c in columns.categories if c.has_other]
    lines += _line("rare categories are taken together in", grouped)
    lines += _line("of many categories, how frequent each is counts too", frequent)
    question = "gives the target away by itself: is it known beforehand?"
    lines += _line(question, giveaways, _DROP_REMEDY)
    return lines


def _line(what: str, names: Sequence[str], remedy: str | None = None) -> list[str]:
    """Return a line that names the columns; none without columns."""
    if not names:
        return []
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    hint = "" if remedy is None else f" ({remedy.format(names[0])})"
    return [f"{what}: {', '.join(names[:_MAX_NAMED])}{more}{hint}."]


_KEEP_REMEDY = "data.columns.{}=number takes it"
_OTHER_KIND_REMEDY = "data.columns.{}=category, drop, … decides otherwise"
_DROP_REMEDY = "data.columns.{}=drop leaves it out"
