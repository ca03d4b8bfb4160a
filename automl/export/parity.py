"""Compares the scores of an export with those of the model, and makes odd rows to compare on. Pure.

A probability may differ by 1e-5. A value may differ by 1e-5 in units of the target's standard
deviation, or more if it is many deviations from the mean, as float32 has seven digits. A label may
not differ. The exceptions are rows whose two best classes have scores within 1e-6 of each other, or
whose score is within 1e-6 of the threshold between two classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.data.columns import Column, NumberColumn, TableColumns, source_column
from automl.data.scoring.metrics import Threshold
from automl.errors import AutoMLError
from automl.models.families.tree_arrays import Borders

TOLERANCE = 1e-5
TIE = 1e-6
N_BORDERS = 100
"""The most thresholds of trees for which rows are made."""
ScoreArray = npt.NDArray[np.float64]


class ParityError(AutoMLError):
    """Raised when the scores of an export are not those of the model."""


@dataclass(frozen=True)
class ParityResult:
    """The number of compared rows, and the largest difference of a score."""

    n_rows: int
    largest: float


def compare_scores(
    ours: ScoreArray,
    theirs: ScoreArray,
    rows: Sequence[str],
    unit: tuple[float, float],
    threshold: Threshold | None = None,
) -> ParityResult:
    """Compare the model's scores `ours` with the export's `theirs`, (N, classes) or (N,).

    `rows` names each row. `unit` is the mean and the scale of the target. `threshold` decides
    the labels; None takes the class of the highest score. Raises ParityError with a row that
    differs, and both values.
    """
    if theirs.shape != ours.shape:
        raise ParityError(
            f"The export gave {theirs.shape} scores for {len(rows)} rows, the model {ours.shape}: "
            f"nothing was written. {_REMEDY}"
        )
    by_score = score_differences(ours, theirs, unit)
    wrong = np.zeros(len(ours), dtype=bool)
    if ours.ndim == 2:
        wrong = _other_labels(ours, theirs, threshold)
    by_row = by_score.reshape(len(rows), -1).max(axis=1, initial=0.0)
    bad = ~(by_row <= TOLERANCE)  # NaN is no agreement
    if bad.any() or wrong.any():
        row = int(np.flatnonzero(bad | wrong)[0])
        raise ParityError(
            f"The export and the model differ on {rows[row]}: {_shown(theirs[row])} exported, "
            f"{_shown(ours[row])} by the model (at most {TOLERANCE:g} is allowed, and no other "
            f"label), on {int((bad | wrong).sum())} of {len(rows)} rows in all. Nothing was "
            f"written. {_REMEDY}"
        )
    return ParityResult(len(rows), float(by_row.max(initial=0.0)))


_REMEDY = "Try another export.format; what draws random numbers as it predicts cannot be exported."


def score_differences(
    ours: ScoreArray, theirs: ScoreArray, unit: tuple[float, float]
) -> ScoreArray:
    """Return the difference of each score, in the unit of TOLERANCE.

    Values far from zero may differ by the rounding of two additions in 64 bits.
    """
    if ours.ndim == 2:
        return np.abs(ours - theirs)
    mean, scale = unit
    beyond: ScoreArray = (np.abs(ours - theirs) - 2 * np.spacing(np.abs(ours))).clip(0.0)
    return beyond / (scale * np.maximum(1.0, np.abs(ours - mean) / scale))


def _other_labels(
    ours: ScoreArray, theirs: ScoreArray, threshold: Threshold | None
) -> npt.NDArray[np.bool_]:
    if ours.shape[1] > 2 and threshold is not None:
        factors = np.min(threshold) / np.asarray(threshold)  # at most 1, so that ties stay ties
        ours, theirs = ours * factors, theirs * factors
    elif threshold is not None:
        others = (ours[:, 1] > threshold) != (theirs[:, 1] > threshold)
        return np.asarray(others & (np.abs(ours[:, 1] - threshold) > TIE))
    rows = np.arange(len(ours))
    lost = ours[rows, ours.argmax(1)] - ours[rows, theirs.argmax(1)]
    return np.asarray(lost > TIE)


def _shown(scores: Any) -> str:
    values = np.ravel(scores)
    more = ", …" if len(values) > 4 else ""
    return ", ".join(f"{value:.8g}" for value in values[:4]) + more


def odd_rows(columns: TableColumns, row: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rare rows, each with its name: all cells missing, and `row` with one cell changed."""
    yield "a row without any value", dict.fromkeys(columns.sources)
    seen = set()
    for column in columns.own.all:
        name = source_column(column)
        for value in _odd_cells(column, row[name]):
            if (name, str(value)) not in seen:
                seen.add((name, str(value)))
                yield f"a row with {name}={value!r}", {**row, name: value}


def border_rows(
    columns: TableColumns, rows: Sequence[Mapping[str, Any]], borders: Borders
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows, each with its name, that have one number at a threshold of a tree.

    The number is on the threshold, above it by less than float32 tells apart, or above it.
    """
    found = {place: _with_number(rows, column) for place, column in enumerate(columns.own.numbers)}
    raw = {place: row for place, row in found.items() if row is not None}
    usable = np.flatnonzero(np.isin(borders[0], [*raw]) & np.isfinite(borders[1]))
    sample = usable[:: max(1, -(-len(usable) // N_BORDERS))]
    for place, threshold in zip(borders[0][sample], borders[1][sample], strict=True):
        column, row = columns.numbers[place], raw[place]
        step = abs(float(np.spacing(np.float32(threshold))))
        # In columns of times the float64 step of the mean is the larger one.
        least = 2 * float(np.spacing(abs(column.mean))) / column.scale
        for above in (0.0, step / 4, max(step, least)):
            value = column.mean + column.scale * (float(threshold) + above)
            yield f"a row with {column.name}={value!r}", {**row, column.name: value}


def _with_number(
    rows: Sequence[Mapping[str, Any]], column: NumberColumn
) -> Mapping[str, Any] | None:
    """Return the first row with a number in this column; None if its cells are of another kind."""
    if column.made_of:
        return None
    return next((row for row in rows if isinstance(row[column.name], int | float)), None)


def _odd_cells(column: Column, value: Any) -> Sequence[Any]:
    if not isinstance(column, NumberColumn):
        return None, "", "?", "a text of no training row", column.categories[0]
    if column.made_of and isinstance(value, str):
        return None, "", "?", "a text of no training row", "1,234.5 €", "31.12.1999", "2024-02-29"
    if not isinstance(value, int | float):  # a column of times holds nothing else
        return (None,)
    return None, float("inf"), float("-inf"), 1e300, -1e30, 0.0
