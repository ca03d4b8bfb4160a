"""Which rows train, which choose among trials, and which no sweep ever sees.

Columns that say which rows belong together (`data.group`) or come later (`data.time`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import train_test_split

from automl.config import DataConfig
from automl.config.commands import ALL, TRAIN
from automl.data import cells
from automl.data.dataset import RefitRows, RowFold, Targets
from automl.data.folds import (
    Kinds,
    cuts_in_order,
    folds_at_random,
    folds_in_order,
    folds_of_groups,
    how_many,
    how_often,
)
from automl.errors import ConfigError

_MIN_TRAIN = 2
_N_PARTS = 3

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RelatedRows:
    """What of the rows is not by chance, by row number."""

    groups: Kinds | None = None
    """Places of the groups that stay together (`data.group`)."""
    times: npt.NDArray[np.float64] | None = None
    """By which later rows judge (`data.time`)."""


BY_CHANCE = RelatedRows()


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Row numbers of each part; together all rows, each once."""

    train: Rows
    validation: Rows
    """Empty with folds."""
    test: Rows
    """Empty where `data.test_path` gives a table of its own, or none is wanted."""
    left: Rows
    """Training rows that no trial trains on (`data.sweep_rows`)."""
    stratified: bool
    """Every class has its share in each part (but for classes of fewer than three rows)."""
    folds: tuple[RowFold, ...] = ()
    """By place in `train`."""


def split_rows(y: Targets, config: DataConfig, related: RelatedRows = BY_CHANCE) -> RowSplit:
    """Split by `data.split_seed`, and evenly by class where `y` (N,) holds class numbers; by
    `related` where rows belong together or are in order.

    Raises ConfigError when there are too few rows.
    """
    n_rows = len(y)
    share = 0.0 if config.test_path is not None else config.test_fraction or 0.0
    n_test = max(1, round(n_rows * share)) if share else 0
    if config.folds != 1 and (split := _with_folds(y, n_test, config, related)) is not None:
        return split
    n_validation = max(1, round(n_rows * config.held_out(has_folds=False)))
    n_least = _MIN_TRAIN + 1 + (n_test > 0)
    if n_rows - n_test - n_validation < _MIN_TRAIN:
        raise ConfigError(
            f"data.path={config.path}: {n_rows} rows with a target cannot be split into training, "
            f"validation{' and test' if n_test else ''} ({n_rows - n_test - n_validation}, "
            f"{n_validation}{f', {n_test}' if n_test else ''} rows): {n_least} are the least. "
            "Give more rows, or a smaller data.validation_fraction or data.test_fraction."
        )
    strata = _strata(y) if y.dtype == np.int64 else None
    rest, test, stratified = _test_rows(n_rows, n_test, strata, config.split_seed, related)
    train, validation, done = _take_related(rest, n_validation, strata, config.split_seed, related)
    stratified &= done
    left = train[:0]
    if config.sweep_rows is not None:
        n_part = _n_part(len(train), config.sweep_rows)
        left, train, done = _take(train, n_part, strata, config.split_seed)
        stratified &= done
    return RowSplit(np.sort(train), np.sort(validation), np.sort(test), np.sort(left), stratified)


def _with_folds(
    y: Targets, n_test: int, config: DataConfig, related: RelatedRows
) -> RowSplit | None:
    """The same test rows as without; all others train and judge. None: a single hold-out will do.

    Raises ConfigError.
    """
    is_classes = y.dtype == np.int64
    strata = _strata(y) if is_classes else None
    _check_any_left(len(y), n_test, config)
    train, test, stratified = _test_rows(len(y), n_test, strata, config.split_seed, related)
    train = np.sort(train)
    n_folds = how_many(config.folds, len(train), _n_most(train, related))
    if n_folds == 1:
        return None
    classes = y[train].astype(np.int64) if is_classes else np.zeros(len(train), np.int64)
    folds = _folds(train, classes, n_folds, config, related)
    stratified &= related.groups is None and related.times is None
    return RowSplit(train, train[:0], np.sort(test), train[:0], stratified, tuple(folds))


def _check_any_left(n_rows: int, n_test: int, config: DataConfig) -> None:
    if n_rows - n_test < _MIN_TRAIN:
        raise ConfigError(
            f"data.path={config.path}: of {n_rows} rows with a target {n_test} are for the test, "
            f"and {n_rows - n_test} left to train on. Give more rows, or a smaller "
            "data.test_fraction."
        )


def _n_most(rows: Rows, related: RelatedRows) -> int:
    """How many folds these rows can be divided into."""
    if related.groups is not None:
        return len(np.unique(related.groups[rows]))
    if related.times is not None:
        return len(np.unique(related.times[rows])) - 1
    return len(rows)


def _folds(
    rows: Rows, classes: Kinds, n_folds: int, config: DataConfig, related: RelatedRows
) -> list[RowFold]:
    """Of each division of the rows, by place among them."""
    if related.times is not None:
        return folds_in_order(related.times[rows], n_folds)
    found = []
    for repeat in range(how_often(config.folds, len(rows))):
        seed = config.split_seed + repeat
        if related.groups is None:
            folds = folds_at_random(classes, n_folds, seed)
        else:
            groups = np.unique(related.groups[rows], return_inverse=True)[1]
            folds = folds_of_groups(groups, classes, n_folds, seed)
        found += [RowFold(fold.train, fold.judged, repeat) for fold in folds]
    return found


def _test_rows(
    n_rows: int, n_test: int, strata: Rows | None, seed: int, related: RelatedRows
) -> tuple[Rows, Rows, bool]:
    rows = np.arange(n_rows)
    if not n_test:
        return rows, rows[:0], strata is not None
    return _take_related(rows, n_test, strata, seed, related)


def _take_related(
    rows: Rows, n_taken: int, strata: Rows | None, seed: int, related: RelatedRows
) -> tuple[Rows, Rows, bool]:
    """As `_take`; whole groups, or the latest rows."""
    if related.groups is not None:
        return (*_take_groups(rows, n_taken, related.groups[rows], seed), False)
    if related.times is not None:
        order = np.argsort(related.times[rows], kind="stable")
        cut = cuts_in_order(related.times[rows][order], [1 - n_taken / len(rows)])[0]
        return rows[order[:cut]], rows[order[cut:]], False
    return _take(rows, n_taken, strata, seed)


def _take_groups(rows: Rows, n_taken: int, groups: Kinds, seed: int) -> tuple[Rows, Rows]:
    """Groups in an order that is drawn, as many as there is room for; at least the smallest."""
    places, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    if len(sizes) < 2:
        raise ConfigError(
            f"data.group: {len(rows)} rows are of one group only, and stay together, so that they "
            "cannot be split. Name another column, or leave data.group out."
        )
    taken = np.zeros(len(sizes), bool)
    for group in np.random.default_rng(seed).permutation(len(sizes)):
        taken[group] = sizes[group] + sizes[taken].sum() <= n_taken
    if not taken.any():
        taken[sizes.argmin()] = True
    return rows[~taken[places]], rows[taken[places]]


def _n_part(n_train: int, sweep_rows: float) -> int:
    """How many rows trials train on. Raises ConfigError where that is not a part of them."""
    n_part = round(sweep_rows * n_train) if sweep_rows < 1 else int(sweep_rows)
    if not _MIN_TRAIN <= n_part < n_train:
        raise ConfigError(
            f"data.sweep_rows={sweep_rows:.12g}: that is {n_part} of the {n_train} training rows; "
            f"a part is at least {_MIN_TRAIN} of them, and not all: leave data.sweep_rows out to "
            "train on all."
        )
    return n_part


def part_of_rows(y: Targets, share: float, seed: int) -> Rows:
    """Places of a share of the rows, evenly by class."""
    strata = _strata(y) if y.dtype == np.int64 else None
    n_part = max(_MIN_TRAIN, round(share * len(y)))
    return np.sort(_take(np.arange(len(y)), n_part, strata, seed)[1])


def regroup_rows(
    split: RowSplit, y: Targets, refit: RefitRows, seed: int, related: RelatedRows = BY_CHANCE
) -> RowSplit:
    """The split of a final training: what it trains on, and what it stops by, which may be empty.

    Where the search had a part of the training rows (`data.sweep_rows`), all of them are taken.
    With `rows` train and nothing held out the validation part stays what it was. Raises ConfigError
    where too few rows are left.
    """
    train, validation = np.concatenate([split.train, split.left]), split.validation
    if refit.rows != TRAIN:
        train, validation = np.concatenate([train, validation]), validation[:0]
    test = split.test
    if refit.rows == ALL:
        train, test = np.concatenate([train, test]), test[:0]
    stratified = split.stratified
    if refit.hold_out is not None:
        n_held = max(1, round(len(train) * refit.hold_out))
        if len(train) - n_held < _MIN_TRAIN:
            raise ConfigError(
                f"refit.hold_out={refit.hold_out}: {len(train)} rows leave too few to train on. "
                "Give a smaller share, or leave it out."
            )
        strata = _strata(y) if y.dtype == np.int64 else None
        train, validation, stratified = _take_related(train, n_held, strata, seed, related)
    left = train[:0]
    return RowSplit(np.sort(train), np.sort(validation), np.sort(test), left, stratified)


def _take(rows: Rows, n_taken: int, strata: Rows | None, seed: int) -> tuple[Rows, Rows, bool]:
    """The rows that stay, those taken, and whether each class gave its share."""
    if strata is not None:
        counts = np.unique_counts(strata[rows]).counts
        if counts.min() < 2 or len(counts) > min(n_taken, len(rows) - n_taken):
            strata = None
    kept, taken = train_test_split(
        rows,
        test_size=n_taken,
        random_state=seed,
        stratify=None if strata is None else strata[rows],
    )
    return kept, taken, strata is not None


def _strata(classes: Targets) -> Rows | None:
    """(N,) the classes, those too small to be in all three parts together with the largest one.

    One rare class must not stop the others from being split evenly. None where all are rare.
    """
    numbers, places, counts = np.unique(classes, return_inverse=True, return_counts=True)
    if (counts >= _N_PARTS).sum() < 2:
        return None
    merged: Rows = np.where(counts < _N_PARTS, numbers[counts.argmax()], numbers)
    return merged[places]


def take_related(frame: pd.DataFrame, config: DataConfig) -> tuple[RelatedRows, list[str]]:
    """What the columns say, which are taken out of the frame; and lines for people.

    Raises ConfigError for a column that is not there, or does not say it of every row.
    """
    if config.group is not None:
        column = _pop(frame, "data.group", config.group, config)
        codes, known = cells.distinct_cells(column)
        _check_all(codes >= 0, column, f"data.group={config.group}", "which group a row is of")
        said = f"data.group={config.group}: {len(known):,} groups, each whole in one part"
        return RelatedRows(groups=codes.astype(np.int64)), [f"{said}; it is not learned from."]
    if config.time is not None:
        column = _pop(frame, "data.time", config.time, config)
        times = _times(column)
        _check_all(np.isfinite(times), column, f"data.time={config.time}", _WHAT_TIME)
        said = f"data.time={config.time}: later rows judge what earlier ones train"
        return RelatedRows(times=times), [f"{said}; it is not learned from."]
    return BY_CHANCE, []


_WHAT_TIME = "when a row was, as a number or as 2024-05-31 14:00"


def _pop(frame: pd.DataFrame, key: str, name: str, config: DataConfig) -> pd.Series[Any]:
    if name == config.target:
        raise ConfigError(f"{key}={name}: this is the target column: name another.")
    if name not in frame.columns:
        listed = ", ".join(map(str, frame.columns[:20])) + (
            ", …" if len(frame.columns) > 20 else ""
        )
        raise ConfigError(
            f"{key}={name}: data.path={config.path} has no such column; it has: {listed}"
        )
    return frame.pop(name)


def _times(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """(N,) numbers that rise with time; NaN where a cell says none."""
    if cells.holds_numbers(column):
        return cells.numbers(column)
    parsed = pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
    return cells.numbers(parsed)


def _check_all(known: npt.NDArray[np.bool_], column: pd.Series[Any], key: str, what: str) -> None:
    if known.all():
        return
    n_unknown = int((~known).sum())
    first = column[~known].iloc[0]
    raise ConfigError(
        f"{key}: {n_unknown:,} of {len(known):,} rows do not say {what}, the first of them "
        f"{str(first)[:50]!r}: mend or remove those rows."
    )
