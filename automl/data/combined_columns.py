"""Columns that are made of others: sums, differences, products (also of three columns), ratios,
crossed categories.

Their cells follow from the cells of a row and from plain values alone, never from a target, so
that no row tells of another. `pair_selection.py` chooses which pairs a table gets. The
module needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.columns import (
    CROSSING,
    MAX_CATEGORIES,
    MIN_CATEGORY_SHARE,
    CategoryColumn,
    Column,
    CombinedColumn,
    NumberColumn,
    TableColumns,
)
from automl.data.dataset import TableRows

Floats: TypeAlias = "npt.NDArray[np.float64]"
_OPERATIONS: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
_LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""A number beyond it counts as missing, as in `data.cells`."""
_QUARTILES_OF_NORMAL = 1.349
"""Distance of the quartiles of a normal distribution, in standard deviations."""


def candidate_pairs(columns: TableColumns) -> Iterator[CombinedColumn]:
    """Yield all pairs of number columns, by each operation, and all pairs of category columns."""
    for left, right in combinations(_number_names(columns), 2):
        yield from (CombinedColumn(left, operation, right) for operation in _OPERATIONS)
        yield CombinedColumn(right, "/", left)
    for left, right in combinations([column.name for column in columns.own.categories], 2):
        yield CombinedColumn(left, CROSSING, right)


def candidate_products(columns: TableColumns, most: int) -> Iterator[CombinedColumn]:
    """Yield the product of each three of the first `most` number columns."""
    for first, second, third in combinations(_number_names(columns)[:most], 3):
        yield CombinedColumn(first, "*", second, third)


def _number_names(columns: TableColumns) -> list[str]:
    """Return the names of the number columns, without target-encoded ones, whose cells are none."""
    return [column.name for column in columns.own.numbers if column.encoded_class is None]


def find_pair(columns: TableColumns, text: str) -> CombinedColumn | None:
    """Return the pair, or the product of three, that a text such as `price / area` names; None if
    it names none."""
    for place, operation in enumerate(text):
        categories = {column.name for column in columns.own.categories}
        names = categories if operation == CROSSING else {*_number_names(columns)}
        left, right = text[:place].strip(), text[place + 1 :].strip()
        if operation not in (*_OPERATIONS, CROSSING) or left not in names:
            continue
        if right in names - {left}:
            return CombinedColumn(left, operation, right)
        inner = find_pair(columns, right) if operation == "*" else None
        if inner is not None and inner.operation == "*" and left not in inner.sides:
            return CombinedColumn(left, "*", inner.left, inner.right) if not inner.third else None
    return None


def add_pairs(
    columns: TableColumns, rows: TableRows, pairs: Sequence[CombinedColumn]
) -> tuple[TableColumns, TableRows]:
    """Return the columns and the rows with the combined columns of these pairs.

    `rows` have the cells of `columns`, from which the pairs are learned. Pairs whose cells are all
    alike are left out.
    """
    columns, rows = columns.own, own_rows(columns, rows)
    learned = [(pair, _learn(columns, rows, pair)) for pair in pairs]
    kept = [(pair, column) for pair, column in learned if column is not None]
    added = tuple(column for _, column in kept)
    combined = replace(columns, all=(*columns.all, *added), pairs=tuple(pair for pair, _ in kept))
    return combined, combine_rows(combined, rows)


def combine_rows(columns: TableColumns, rows: TableRows) -> TableRows:
    """Return rows of all `columns` for rows of `columns.own`."""
    if not columns.pairs:
        return rows
    numbers = np.empty((len(rows), len(columns.numbers)))
    codes = np.empty((len(rows), len(columns.categories)), np.int32)
    numbers[:, : rows.numbers.shape[1]] = rows.numbers
    codes[:, : rows.codes.shape[1]] = rows.codes
    fill_combined(columns, combined := TableRows(numbers, codes))
    return combined


def fill_combined(columns: TableColumns, rows: TableRows) -> None:
    """Write the cells of the combined columns beside those of `columns.own`, which `rows` has."""
    if not columns.pairs:
        return
    own, made = columns.own, columns.all[len(columns.own.all) :]
    own_cells = own_rows(columns, rows)
    numbers = iter(rows.numbers.T[len(own.numbers) :])
    codes = iter(rows.codes.T[len(own.categories) :])
    for column, pair in zip(made, columns.pairs, strict=True):
        if isinstance(column, CategoryColumn):
            next(codes)[:] = _crossed_codes(own, own_cells, pair, column)
        else:
            next(numbers)[:] = _combined_numbers(own, own_cells, pair)


def own_rows(columns: TableColumns, rows: TableRows) -> TableRows:
    """Return rows of `columns` without the cells of combined columns."""
    own = columns.own
    return TableRows(rows.numbers[:, : len(own.numbers)], rows.codes[:, : len(own.categories)])


def candidate_cells(
    columns: TableColumns, rows: TableRows, pairs: Iterable[CombinedColumn]
) -> Iterator[tuple[CombinedColumn, Floats]]:
    """Yield each pair and the cells (N,) of its combined column, codes for crossed categories.

    `rows` have the cells of `columns`. Pairs whose cells are all alike are left out. Unlike
    `add_pairs`, nothing is learned of numbers: most of hundreds of candidates are not taken.
    """
    own, rows = columns.own, own_rows(columns, rows)
    for pair in pairs:
        if pair.operation != CROSSING:
            values = _combined_numbers(own, rows, pair)
            if _varies(values[~np.isnan(values)]):
                yield pair, values
        elif (column := _learn_crossing(own, rows, pair)) is not None:
            yield pair, _crossed_codes(own, rows, pair, column).astype(np.float64)


def side_places(columns: TableColumns, pair: CombinedColumn) -> tuple[int, ...]:
    """Return the places of the pair's columns among the number or the category columns."""
    kind = columns.own.categories if pair.operation == CROSSING else columns.own.numbers
    names = [column.name for column in kind]
    return tuple(names.index(name) for name in pair.sides)


def _combined_numbers(own: TableColumns, rows: TableRows, pair: CombinedColumn) -> Floats:
    sides = [rows.numbers[:, place] for place in side_places(own, pair)]
    with np.errstate(all="ignore"):
        values = reduce(_OPERATIONS[pair.operation], sides)
    return np.where(np.abs(values) <= _LARGEST_NUMBER, values, np.nan)


def _crossed_codes(
    own: TableColumns, rows: TableRows, pair: CombinedColumn, column: CategoryColumn
) -> npt.NDArray[np.int32]:
    """Return the place (N,) of each row's two codes in the categories of a crossed column."""
    places = side_places(own, pair)
    shape = [len(own.categories[place].categories) + 1 for place in places]
    table = np.full(shape, len(column.categories), np.int32)
    for place, text in enumerate(column.categories):
        left, right = map(int, text.split(","))
        table[left, right] = place
    crossed: npt.NDArray[np.int32] = table[tuple(rows.codes[:, place] for place in places)]
    return crossed


def _learn(own: TableColumns, rows: TableRows, pair: CombinedColumn) -> Column | None:
    """Return the facts about the combined column; None if all its cells are alike."""
    if pair.operation == CROSSING:
        return _learn_crossing(own, rows, pair)
    values = _combined_numbers(own, rows, pair)
    values = values[~np.isnan(values)]
    if not _varies(values):
        return None
    # A ratio may have outliers, which alone would decide a mean and a deviation.
    low, median, high = map(float, np.quantile(values, (0.25, 0.5, 0.75)))
    scale = (high - low) / _QUARTILES_OF_NORMAL or float(values.std() or np.ptp(values))
    return NumberColumn(pair.name, mean=median, scale=scale, fill=median, has_indicator=False)


def _varies(values: Floats) -> bool:
    """Return whether two of the values, none of which is missing, differ."""
    return len(values) > 0 and bool(values.min() < values.max())


def _learn_crossing(
    own: TableColumns, rows: TableRows, pair: CombinedColumn
) -> CategoryColumn | None:
    """Return the crossed column: a category is the two codes of a row, as `left,right`."""
    codes = rows.codes[:, side_places(own, pair)]
    found, counts = np.unique(codes, axis=0, return_counts=True)
    frequent = counts >= max(2, math.ceil(MIN_CATEGORY_SHARE * len(rows)))
    most = np.argsort(-counts, kind="stable")
    kept = np.sort(most[frequent[most]][: MAX_CATEGORIES - 1])
    texts = tuple(f"{left},{right}" for left, right in found[kept])
    return CategoryColumn(pair.name, texts, has_other=len(kept) < len(found)) if texts else None
