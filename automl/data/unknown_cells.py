"""Counts the cells of later rows that a model does not know, and reports or refuses too many of
them.

A cell is unknown if it is there and says nothing to the model: a text in a column of numbers or
dates, a category that training did not have or that was rare there, a text without a known word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.data import cells
from automl.data.columns import DateReading, FrequencyReading, TableColumns, TextReading
from automl.data.dataset import TableRows

_N_EXAMPLES = 10
_N_SHOWN = 3
_OLD_SHARE = 0.5
"""The share of unknown cells in training, where an older model file does not tell it."""
_MAX_CHANCE = 0.05
"""Columns without a known cell are refused if that is less likely than this among rows like those
of training."""


@dataclass(frozen=True)
class UnknownCells:
    """The number of unknown cells of one column, in some rows."""

    n_present: int
    """Number of cells that are not missing."""
    n_unknown: int
    examples: tuple[str, ...]
    """Different unknown cells, at most `_N_EXAMPLES`."""
    first: Hashable = None
    """The label of the first row with an unknown cell, as in the table's index."""

    def __add__(self, other: UnknownCells) -> UnknownCells:
        examples = dict.fromkeys((*self.examples, *other.examples))
        return UnknownCells(
            self.n_present + other.n_present,
            self.n_unknown + other.n_unknown,
            tuple(examples)[:_N_EXAMPLES],
            self.first if self.n_unknown else other.first,
        )

    @property
    def share(self) -> float:
        """Return the share of unknown cells among those that are there."""
        return self.n_unknown / max(1, self.n_present)

    def is_above(self, share: float) -> bool:
        """Return whether more cells are unknown than chance explains where `share` of the cells
        were unknown in training (two standard deviations)."""
        expected = self.n_present * share
        return self.n_unknown > expected + 2 * math.sqrt(expected * (1 - share))

    def are_all(self, share: float, n_needed: int) -> bool:
        """Return whether no cell is known, by at least `n_needed` different cells, which chance
        does not explain where `share` of the cells were unknown in training."""
        n_different = len(self.examples)
        chance = share**n_different
        return n_needed <= n_different and self.share == 1 and chance < _MAX_CHANCE


TableTally = Mapping[str, UnknownCells]
"""The unknown cells of each column of the table, by its name."""


def count_unknown(column: pd.Series[Any], is_read: npt.NDArray[np.bool_]) -> UnknownCells:
    """Return the unknown cells of a column: those that are neither read nor missing."""
    if is_read.all():
        return UnknownCells(len(column), 0, ())
    unread = column[~is_read]
    codes, different = cells.distinct_cells(unread)
    n_unknown = int((codes >= 0).sum())
    first = unread.index[int((codes >= 0).argmax())] if n_unknown else None
    examples = tuple(dict.fromkeys(map(cells.verbatim_text, different[:_N_EXAMPLES])))
    return UnknownCells(int(is_read.sum()) + n_unknown, n_unknown, examples, first)


def unknown_shares(tally: TableTally) -> dict[str, float]:
    """Return the share of unknown cells by column, of the columns that have any."""
    return {name: counted.share for name, counted in tally.items() if counted.n_unknown}


class CellCounter:
    """Encodes raw rows chunk by chunk, and counts the cells of all of them that are unknown."""

    def __init__(
        self,
        columns: TableColumns,
        read_cells: Callable[[pd.DataFrame], tuple[TableRows, TableTally]],
    ) -> None:
        self._columns, self._read_cells = columns, read_cells
        self._tally: dict[str, UnknownCells] = {}

    def read(self, frame: pd.DataFrame) -> TableRows:
        """Return the encoded rows of a chunk."""
        rows, tally = self._read_cells(frame)
        for name, counted in tally.items():
            before = self._tally.get(name)
            self._tally[name] = counted if before is None else before + counted
        return rows

    def refusal(self) -> str:
        """Return why the rows are refused; empty: they are not (`unknown_column`)."""
        return unknown_column(self._columns, self._tally)

    def notes(self) -> list[str]:
        """Return a line for each column with more unknown cells than training had."""
        lines = []
        for name, counted in self._tally.items():
            share = self._columns.unknown_share(name)
            if share is not None and counted.is_above(share):
                lines.append(
                    f"{name}: {counted.n_unknown:,} of {counted.n_present:,} cells "
                    f"({100 * counted.share:.3g} %) are no known {_kind(self._columns, name)[0]}, "
                    f"such as {_shown(counted)}; in training {100 * share:.3g} %"
                )
        return lines


def unknown_column(columns: TableColumns, tally: TableTally) -> str:
    """Return a message on a column of later rows in which no cell is known, unlike in training.

    A single new category, such as a new shop in all rows, is no reason. The text is empty if all
    columns have known cells.
    """
    for name, counted in tally.items():
        kind, n_needed = _kind(columns, name)
        share = columns.unknown_share(name)
        if counted.are_all(_OLD_SHARE if share is None else share, n_needed):
            remedy = "give it as it was in training"
            if n_needed > 1:
                remedy += f"{_such_as_known(columns, name)}, or leave its cells empty"
            return (
                f"Column {name} held {kind} in training and now holds none of them, but for "
                f"example {_shown(counted)}: {remedy}."
            )
    return ""


def unreadable_cells(columns: TableColumns, tally: TableTally) -> str:
    """Return a line on the columns of numbers or dates with more unknown cells than training had;
    empty: there are no such columns."""
    parts = []
    for name, counted in tally.items():
        (kind, n_needed), share = _kind(columns, name), columns.unknown_share(name)
        if n_needed == 1 and share is not None and counted.is_above(share):
            parts.append(
                f"{name}: {counted.n_unknown:,} of {counted.n_present:,} cells cannot be "
                f"read as {kind}, first {counted.examples[0][:60]!r} in row {counted.first}"
            )
    return f"{'; '.join(parts)}. They count as missing." if parts else ""


def _kind(columns: TableColumns, name: str) -> tuple[str, int]:
    """Return what the column holds, and the number of different unknown cells that is needed to
    refuse it: a new category or text is nothing odd, a text that is no number is."""
    reading = next((reading for reading in columns.readings if reading.name == name), None)
    if isinstance(reading, DateReading):
        return "dates", 1
    if isinstance(reading, TextReading):
        return "words", 2
    is_category = any(column.name == name for column in columns.own.categories)
    is_counted = isinstance(reading, FrequencyReading)
    return ("categories", 2) if is_category or is_counted else ("numbers", 1)


def _such_as_known(columns: TableColumns, name: str) -> str:
    found = next((column for column in columns.own.categories if column.name == name), None)
    known = [text for text in found.categories if text] if found is not None else []
    return f", such as {known[0][:60]!r}" if known else ""


def _shown(counted: UnknownCells) -> str:
    return ", ".join(repr(text[:60]) for text in counted.examples[:_N_SHOWN])
