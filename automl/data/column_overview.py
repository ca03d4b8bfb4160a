"""What was taken for what: a table's columns for people, in short and in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from automl.config import ColumnKind
from automl.data.column_kinds import PLAIN_NUMBERS, ColumnReading
from automl.data.columns import CategoryColumn, TableColumns, source_of

_MAX_NAMED = 10


class ColumnRow(NamedTuple):
    """A column of the table."""

    name: str
    kind: str
    n_features: int
    """That a network sees of it."""
    why: str
    is_plain: bool = False
    """It holds numbers, and there is nothing more to say of it."""


def column_rows(
    columns: TableColumns, taken: Mapping[str, ColumnReading], tells: Sequence[str]
) -> list[ColumnRow]:
    """All columns, in the table's order; `tells` names those that give the target away."""
    n_features = dict.fromkeys(taken, 0)
    for column in columns.all:
        own = column.n_codes if isinstance(column, CategoryColumn) else 1 + column.has_indicator
        n_features[source_of(column)] += own
    return [
        ColumnRow(
            name,
            *_kind(one, n_features[name]),
            f"{_why(one, n_features[name])}{_TELLS * (name in tells)}",
            one.why == PLAIN_NUMBERS and n_features[name] > 0 and name not in tells,
        )
        for name, one in taken.items()
    ]


_TELLS = "; gives the target away"


def _why(one: ColumnReading, n_features: int) -> str:
    left_out = one.kind is not ColumnKind.drop and n_features == 0
    return "constant or empty" if left_out and one.why == PLAIN_NUMBERS else one.why


def _kind(one: ColumnReading, n_features: int) -> tuple[str, int]:
    left_out = one.kind is not ColumnKind.drop and n_features == 0
    return ("left out" if left_out else one.kind.value), n_features


def column_notes(
    columns: TableColumns, taken: Mapping[str, ColumnReading], tells: Sequence[str]
) -> list[str]:
    """Lines for the begin of a sweep."""
    dropped = {n: one for n, one in taken.items() if one.kind is ColumnKind.drop and one.is_new}
    by_user = [n for n, one in taken.items() if one.kind is ColumnKind.drop and not one.is_new]
    used = set(columns.sources)
    silent = [n for n, one in taken.items() if one.kind is not ColumnKind.drop and n not in used]
    lines = [
        *_line("left out, being row numbers or identifiers", dropped, _keeps),
        *_line("left out, as data.columns says", by_user),
        *_line("left out, being constant, empty, or texts that do not repeat", silent),
    ]
    made = {r.name: taken[r.name] for r in columns.readings}
    for word, kind in (("dates", "date"), ("texts", "text"), ("numbers in texts", "number")):
        names = [n for n, one in made.items() if one.reading and one.reading.kind == kind]
        lines += _line(f"taken as {word}", names, _otherwise)
    frequent = [n for n, one in made.items() if one.reading and one.reading.kind == "frequency"]
    grouped = [c.name for c in columns.categories if c.has_other]
    lines += _line("rare categories are taken together in", grouped)
    lines += _line("of many categories, how frequent each is counts too", frequent)
    lines += _line("gives the target away by itself: is it known beforehand?", tells, _drops)
    return lines


def _line(what: str, names: Iterable[str], remedy: object = None) -> list[str]:
    found = list(names)
    if not found:
        return []
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    hint = f" ({remedy.format(found[0])})" if isinstance(remedy, str) else ""
    return [f"{what}: {', '.join(found[:_MAX_NAMED])}{more}{hint}."]


_keeps = "data.columns.{}=number takes it"
_otherwise = "data.columns.{}=category, drop, … decides otherwise"
_drops = "data.columns.{}=drop leaves it out"
