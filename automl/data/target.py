"""The target of a table: whether classes or values are predicted, decided from its cells.

The decision is made once, on the training table, and applied to test tables and to rows that are
scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config import ColumnKind, Task
from automl.data import cells
from automl.data.cells import are_verbatim
from automl.data.column_kinds import (
    distinct_texts,
    make_numbers,
    read_cell_number,
    sample_cell_texts,
)
from automl.data.columns import TRUTH_BY_NUMBER, NumberReading, holds_truths
from automl.data.dataset import Label, Targets
from automl.data.text_values import detect_number_style
from automl.errors import ConfigError

MAX_INTEGER_CLASSES = 20
"""Integers of more different values than this are amounts, not classes."""
LEAST_ROWS = 3
"""Rows that a class needs to be in all three parts of a table."""
Spelling: TypeAlias = Callable[[object], str]
"""A function that makes one text of all the ways in which a label may be given."""
_MAX_SHOWN = 8
_AS_CLASSES = "; data.task=classification predicts classes instead."
_MOSTLY = 0.9


@dataclass(frozen=True)
class TargetColumn:
    """The way in which the target column becomes `y`.

    It is decided on the training table, and applied to the test table, too.
    """

    name: str
    task: Task
    classes: tuple[Label, ...]
    taken_as: str
    """A line for people: what the column was taken for, and how to choose otherwise."""
    reading: NumberReading | None = None
    """The way in which texts say numbers; None: cells are plain numbers, or classes."""
    verbatim: bool = False
    """Whether classes are codes: `1` and `01` are two of them."""

    @property
    def new_kind(self) -> Mapping[str, str]:
        """Return the target's kind by its name, where older studies took it for another; else
        nothing."""
        if self.verbatim:
            return {self.name: ColumnKind.category.value}
        return {} if self.reading is None else {self.name: self.reading.kind}

    def encode(self, column: pd.Series[Any], path_key: str) -> Targets:
        """Return (N,) class numbers, or values, of rows that have a target.

        Raises ConfigError, naming the setting `path_key`, for a label that is not among the
        classes and for a value that is no number.
        """
        if self.task is Task.regression:
            reading = self.reading
            values = (
                cells.column_to_numbers(column)
                if reading is None
                else make_numbers(reading, column)["number"]
            )
            if np.isnan(values).any():
                cell = column[np.isnan(values)].iloc[0]
                raise self._unusable(path_key, cell, _why_no_number(cell, reading))
            return values
        spelling = cells.verbatim_text if self.verbatim else cells.cell_to_text
        numbers = {spelling(label): i for i, label in enumerate(self.classes)}
        if holds_truths(numbers):
            numbers |= {n: numbers[t] for n, t in TRUTH_BY_NUMBER.items() if t in numbers}
        codes, labels = cells.distinct_cells(column, cells.MISSING_TARGET_TEXTS)
        for label in labels:
            if spelling(label) not in numbers:
                rule = f"none of the classes of data.path ({shown_labels(self.classes)})"
                raise self._unusable(path_key, label, rule)
        return np.array([numbers[spelling(v)] for v in labels], dtype=np.int64)[codes]

    def _unusable(self, path_key: str, cell: object, rule: str) -> ConfigError:
        return ConfigError(
            f"{path_key}: the target column {self.name} holds {cells.shown_cell(cell)}, which is "
            f"{rule}: mend or remove those rows."
        )


def detect_target_amounts(column: pd.Series[Any], task: Task) -> NumberReading | None:
    """Return how texts say the amounts to predict, with separators, a currency or a unit.

    The result is None for a column of plain numbers, or of classes. Under task=auto nearly all
    texts must say a number, and more different ones than classes would be.
    """
    if task is Task.classification or cells.holds_numbers(column):
        return None
    mark, unit, share = detect_number_style(sample_cell_texts(cells.distinct_cells(column)[1])[0])
    reading = NumberReading(str(column.name), mark, unit)
    if share > 0 and (task is Task.regression or _are_amounts(column, reading)):
        return reading
    return None


def are_labels_verbatim(column: pd.Series[Any], task: Task) -> bool:
    """Return whether a target holds codes, which are classes unless `task` is regression."""
    return task is not Task.regression and are_verbatim(distinct_texts(column))


def has_target(
    column: pd.Series[Any], reading: NumberReading | None = None, *, verbatim: bool = False
) -> npt.NDArray[np.bool_]:
    """Return (N,) truth values: which rows have a target to learn from.

    In a column of numbers, a target is a finite number. In a column of texts, it is every text but
    the few words for missing: `None` and `null` can be the names of classes. Where `reading` makes
    numbers of texts, all words for missing are left out; other texts without a number stay, so that
    a message can name them.
    """
    if reading is not None:
        return cells.distinct_cells(column)[0] >= 0
    if not verbatim and cells.holds_numbers(column):
        return np.isfinite(cells.column_to_numbers(column))
    return cells.distinct_cells(column, cells.MISSING_TARGET_TEXTS)[0] >= 0


def labelled_rows(frame: Any, y: Any, target: TargetColumn) -> tuple[Any, Targets]:
    """Return the rows of `frame` that have a target, and their encoded targets.

    `y` (N,) holds the targets; None: the frame's own column does. Raises ConfigError where no row
    has a target, and like `TargetColumn.encode`.
    """
    if y is None:
        if not isinstance(frame, pd.DataFrame) or target.name not in frame.columns:
            raise ConfigError(
                f"The rows hold no column {target.name or 'of targets'}: give the targets beside "
                "them, score(frame, y)."
            )
        y = frame[target.name]
    column = pd.Series(y).reset_index(drop=True)
    if len(column) != len(frame):
        raise ConfigError(f"{len(column)} targets for {len(frame)} rows: give one for each.")
    known = has_target(column, target.reading, verbatim=target.verbatim)
    if not known.any():
        raise ConfigError(
            f"No row has a target ({len(frame)} rows): there is nothing to score by"
            f"{large_targets(column)}."
        )
    kept = frame[known] if isinstance(frame, pd.DataFrame) else np.asarray(frame)[known]
    return kept, target.encode(column[known], "the rows")


def large_targets(column: pd.Series[Any]) -> str:
    """Return the end of a message about a column without targets: how many cells are too large."""
    n_large, largest = cells.count_too_large(column), f"{cells.LARGEST_NUMBER:.2g}"
    return f"; {n_large:,} are infinite or too large, beyond {largest}: divide them" * (n_large > 0)


def _why_no_number(cell: object, reading: NumberReading | None) -> str:
    number = _target_number(cell, reading)
    is_large = number is not None and abs(number) > cells.LARGEST_NUMBER
    return f"too large, beyond {cells.LARGEST_NUMBER:.2g}" if is_large else "no number"


def decide_target(
    column: pd.Series[Any], name: str, task: Task, reading: NumberReading | None = None
) -> TargetColumn:
    """Return the target of a table whose rows all have one; `detect_target_amounts` finds
    `reading`.

    auto takes text, and integers of at most 20 different values, as classes, the rest as values.
    Raises ConfigError for text under task=regression, and where all targets are alike.
    """
    _check_varies(column, name)
    if reading is not None:
        return _amounts(column, name, reading)
    if not cells.holds_numbers(column):
        if task is Task.regression or (task is Task.auto and _are_amounts(column)):
            raise _not_numbers(column, name)
        target = _text_classes(column, name)
        if task is Task.auto:
            _check_few(column, target)
        return target
    different = np.unique(cells.column_to_numbers(column))
    whole = bool((different == np.floor(different)).all())
    few = whole and len(different) <= MAX_INTEGER_CLASSES
    if task is Task.regression or (task is Task.auto and not few):
        taken_as = f"{name}: numbers, taken as regression{_AS_CLASSES}"
        return TargetColumn(name, Task.regression, (), taken_as)
    classes = _numbers_as_labels(cells.distinct_cells(column)[1])
    taken_as = (
        f"{name}: {'integers' if whole else 'numbers'}, taken as {len(classes)} classes "
        f"({shown_labels(classes)}); data.task=regression predicts amounts instead."
    )
    return TargetColumn(name, Task.classification, classes, taken_as)


def verbatim_target(column: pd.Series[Any], name: str, task: Task) -> TargetColumn:
    """Return the target of a table whose target column holds codes (`are_labels_verbatim`).

    Raises ConfigError like `decide_target`.
    """
    _check_varies(column, name, cells.verbatim_text)
    target = replace(_text_classes(column, name, cells.verbatim_text), verbatim=True)
    if task is Task.auto:
        _check_few(column, target)
    taken_as = (
        f"{name}: codes, taken as {len(target.classes)} classes as they are written "
        f"({shown_labels(target.classes)}); data.task=regression predicts amounts instead."
    )
    return replace(target, taken_as=taken_as)


def _amounts(column: pd.Series[Any], name: str, reading: NumberReading) -> TargetColumn:
    """Return the target for a column of amounts in texts.

    Raises ConfigError where some texts say no number.
    """
    values = cells.distinct_cells(column)[1]
    if any(_target_number(value, reading) is None for value in values):
        raise _not_numbers(column, name, reading)
    example = next((value for value in values if isinstance(value, str)), values[0])
    taken_as = f"{name}: numbers in texts such as {example!r}, taken as regression{_AS_CLASSES}"
    return TargetColumn(name, Task.regression, (), taken_as, reading)


def _target_number(value: object, reading: NumberReading | None) -> float | None:
    """Return the number that a cell of a target says; None for other cells and truth values."""
    if isinstance(value, bool | np.bool_):
        return None
    return cells.cell_to_number(value) if reading is None else read_cell_number(reading, value)


def shown_labels(labels: Sequence[Label]) -> str:
    """Return the first few labels, for a message."""
    more = ", …" if len(labels) > _MAX_SHOWN else ""
    return ", ".join(cells.cut_text(str(label)) for label in labels[:_MAX_SHOWN]) + more


def _check_varies(
    column: pd.Series[Any], name: str, spelling: Spelling = cells.cell_to_text
) -> None:
    labels = cells.distinct_cells(column, cells.MISSING_TARGET_TEXTS)[1]
    if len({spelling(label) for label in labels[:2]}) > 1:
        return
    if len({spelling(label) for label in labels}) == 1:
        raise one_class_error(name, labels[0])


def one_class_error(name: str, value: object) -> ConfigError:
    """Return the error about a target that is the same in all rows."""
    return ConfigError(
        f"data.target={name}: there is one class only: every row holds {cells.shown_cell(value)}, "
        "so there is nothing to learn. Choose another column or other rows."
    )


def _text_classes(
    column: pd.Series[Any], name: str, spelling: Spelling = cells.cell_to_text
) -> TargetColumn:
    codes, values = cells.distinct_cells(column, cells.MISSING_TARGET_TEXTS)
    by_text = {spelling(v): str(v) for v in reversed(values)}
    if len(by_text) == len(codes) > MAX_INTEGER_CLASSES:
        raise ConfigError(
            f"data.target={name}: each of the {len(codes)} rows holds a text of its own, such as "
            f"{cells.shown_cell(str(values[0]))}, so there are no classes to learn. Choose another "
            "column."
        )
    classes: tuple[Label, ...] = tuple(sorted(by_text.values()))
    if set(by_text) == {"True", "False"}:
        classes = (False, True)
    taken_as = f"{name}: text, taken as {len(classes)} classes ({shown_labels(classes)})."
    return TargetColumn(name, Task.classification, classes, taken_as)


def _check_few(column: pd.Series[Any], target: TargetColumn) -> None:
    """Raise ConfigError for texts that hardly repeat.

    It is called under task=auto alone, where nobody said that the texts are classes.
    """
    n_rows, n_classes = len(column), len(target.classes)
    if n_classes <= MAX_INTEGER_CLASSES or n_rows >= LEAST_ROWS * n_classes:
        return
    raise ConfigError(
        f"data.target={target.name}: {n_classes:,} different texts in {n_rows:,} rows, such as "
        f"{cells.shown_cell(str(target.classes[0]))}: too many to be classes, of which each needs "
        f"{LEAST_ROWS} rows, to train, to choose by and to test. Choose another column, group its "
        "texts, or set data.task=classification."
    )


def _are_amounts(column: pd.Series[Any], reading: NumberReading | None = None) -> bool:
    """Return whether nearly all cells are numbers, more different ones than classes would be."""
    codes, values = cells.distinct_cells(column)
    numeric = np.array([_target_number(value, reading) is not None for value in values], dtype=bool)
    n_rows = int((codes >= 0).sum())
    n_different, share = int(numeric.sum()), numeric[codes[codes >= 0]].sum() / max(1, n_rows)
    return n_different > MAX_INTEGER_CLASSES and share >= _MOSTLY


def _not_numbers(
    column: pd.Series[Any], name: str, reading: NumberReading | None = None
) -> ConfigError:
    codes, values = cells.distinct_cells(column)
    wrong = [i for i, v in enumerate(values) if _target_number(v, reading) is None]
    places = column.index.to_numpy()[np.isin(codes, wrong)]
    n_all = f"{len(column):,} rows"
    n_rows = f"{len(places):,} of {n_all} hold" if len(places) > 1 else f"1 of {n_all} holds"
    return ConfigError(
        f"data.target={name}: numbers are needed (data.task=regression), and {n_rows} "
        f"something else, such as {cells.shown_cell(str(values[wrong[0]]))} "
        f"({named_rows(places)}): mend those cells, choose another column, or set "
        "data.task=classification."
    )


def named_rows(places: npt.NDArray[np.integer]) -> str:
    """Return `rows 3, 8, …` for places in a table, counted from 1 behind the header."""
    numbers = [str(place + 1) for place in places[:_MAX_SHOWN].tolist()]
    more = ", …" if len(places) > _MAX_SHOWN else ""
    return f"row{'s' * (len(places) > 1)} {', '.join(numbers)}{more}"


def _numbers_as_labels(values: Sequence[Any]) -> tuple[int | float, ...]:
    """Return the sorted labels of the values.

    They are parsed from the common spelling and not from a float, so that large integers stay
    exact.
    """

    def parsed(text: str) -> int | float:
        try:
            return int(text)
        except ValueError:
            return float(text)

    return tuple(sorted(parsed(text) for text in {cells.cell_to_text(v) for v in values}))
