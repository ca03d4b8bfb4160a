"""The split of a table's rows: rows that train, rows that choose among trials, and test rows.

No sweep sees the test rows. The columns `data.group` (rows that belong together) and `data.time`
(rows in order) are read here, too. `folds.py` makes the folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import train_test_split

from automl.config import DataConfig, DataRule
from automl.config.command_arguments import ALL_ROWS, TRAIN_ROWS
from automl.data import cells
from automl.data.dataset import RefitRows, RowFold, Targets
from automl.data.folds import (
    MAX_FOLDED_ROWS,
    Kinds,
    TableSize,
    cuts_in_order,
    folds_at_random,
    folds_in_order,
    folds_of_groups,
)
from automl.errors import ConfigError

_MIN_TRAIN = 2
_N_PARTS = 3

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RelatedRows:
    """The relations among rows that a split must respect: groups, or an order in time.

    At most one of the two fields is set; with neither, rows are split by chance.
    """

    groups: Kinds | None = None
    """(N,) number of the group of each row, whose rows stay together (`data.group`)."""
    times: npt.NDArray[np.float64] | None = None
    """(N,) time of each row; later rows judge models of earlier ones (`data.time`)."""


UNRELATED_ROWS = RelatedRows()


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Row numbers of each part; together the parts hold every row once."""

    train: Rows
    validation: Rows
    """Rows that choose among trials; empty with folds."""
    test: Rows
    """Rows that no sweep sees; empty where `data.test` gives a test table, or no test part is
    wanted."""
    left: Rows
    """Training rows that no trial trains on (`data.sweep_rows`)."""
    stratified: bool
    """Whether every class of at least three rows has its share in each part."""
    folds: tuple[RowFold, ...] = ()
    """The folds of a trial, by places in `train`; empty: `validation` judges."""


def split_rows(
    y: Targets, config: DataConfig, related: RelatedRows = UNRELATED_ROWS, n_columns: int = 0
) -> RowSplit:
    """Split the rows by `data.split_seed`, evenly by class where `y` (N,) holds class numbers.

    `n_columns` of the table decide with its rows how many folds there are, by
    `DataRule.folds_by_cost`. Rows that belong together or are in order are split by `related`.
    Raises ConfigError when there are too few rows.
    """
    n_rows = len(y)
    share = config.test_fraction
    n_test = max(1, round(n_rows * share)) if share else 0
    strata = _strata(y) if y.dtype == np.int64 else None
    tested = None
    if config.folds not in (None, 1):
        _check_any_left(n_rows, n_test, config)
        tested = _test_rows(n_rows, n_test, strata, config.split_seed, related)
        if (split := _with_folds(y, tested, config, related, n_columns)) is not None:
            return split
    held_out = config.held_out(has_folds=False, few_rows=n_rows - n_test <= MAX_FOLDED_ROWS)
    n_validation = max(1, min(round(n_rows * held_out), config.max_held_out))
    n_least = _MIN_TRAIN + 1 + (n_test > 0)
    if n_rows - n_test - n_validation < _MIN_TRAIN:
        raise ConfigError(
            f"data.path={config.path}: {n_rows} rows with a target cannot be split into training, "
            f"validation{' and test' if n_test else ''} ({n_rows - n_test - n_validation}, "
            f"{n_validation}{f', {n_test}' if n_test else ''} rows): {n_least} are the least. "
            "Give more rows, or a smaller data.validation_fraction or data.test."
        )
    if tested is None:
        tested = _test_rows(n_rows, n_test, strata, config.split_seed, related)
    rest, test, stratified = tested
    train, validation, even = _take_related(rest, n_validation, strata, config.split_seed, related)
    stratified &= even
    left = train[:0]
    if config.sweep_rows is not None:
        n_part = _n_part(len(train), config.sweep_rows)
        left, train, even = _take(train, n_part, strata, config.split_seed)
        stratified &= even
    return RowSplit(np.sort(train), np.sort(validation), np.sort(test), np.sort(left), stratified)


def _with_folds(
    y: Targets,
    tested: tuple[Rows, Rows, bool],
    config: DataConfig,
    related: RelatedRows,
    n_columns: int,
) -> RowSplit | None:
    """Return a split with folds, or None where a single hold-out is enough.

    `tested` is what `_test_rows` returned: all rows but the test rows train and judge. Raises
    ConfigError where there are too few rows.
    """
    is_classes = y.dtype == np.int64
    train, test, stratified = tested
    train = np.sort(train)
    size = TableSize(len(train), n_columns if config.follows(DataRule.folds_by_cost) else 0)
    n_folds = size.n_folds(config.folds, _n_most(train, related))
    if n_folds == 1:
        return None
    classes = y[train].astype(np.int64) if is_classes else np.zeros(len(train), np.int64)
    n_repeats = 1 if related.times is not None else size.n_repeats(config.folds)
    folds = _folds(train, classes, (n_folds, n_repeats), config.split_seed, related)
    stratified &= related.groups is None and related.times is None
    return RowSplit(train, train[:0], np.sort(test), train[:0], stratified, tuple(folds))


def _check_any_left(n_rows: int, n_test: int, config: DataConfig) -> None:
    if n_rows - n_test < _MIN_TRAIN:
        raise ConfigError(
            f"data.path={config.path}: of {n_rows} rows with a target {n_test} are for the test, "
            f"and {n_rows - n_test} left to train on. Give more rows, or a smaller "
            "data.test."
        )


def _n_most(rows: Rows, related: RelatedRows) -> int:
    """Return the largest number of folds that these rows can be divided into."""
    if related.groups is not None:
        return len(np.unique(related.groups[rows]))
    if related.times is not None:
        return len(np.unique(related.times[rows])) - 1
    return len(rows)


def _folds(
    rows: Rows, classes: Kinds, numbers: tuple[int, int], seed: int, related: RelatedRows
) -> list[RowFold]:
    """Return the folds of all divisions of the rows, as places in `rows`.

    `numbers` are those of the folds of a division, and of the divisions.
    """
    n_folds, n_repeats = numbers
    if related.times is not None:
        return folds_in_order(related.times[rows], n_folds)
    found = []
    for repeat in range(n_repeats):
        if related.groups is None:
            folds = folds_at_random(classes, n_folds, seed + repeat)
        else:
            groups = np.unique(related.groups[rows], return_inverse=True)[1]
            folds = folds_of_groups(groups, classes, n_folds, seed + repeat)
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
    """Take whole groups, the latest rows, or rows by chance, as `related` says.

    Return the rows that stay, the rows taken, and whether each class gave its share.
    """
    if related.groups is not None:
        return (*_take_groups(rows, n_taken, related.groups[rows], seed), False)
    if related.times is not None:
        order = np.argsort(related.times[rows], kind="stable")
        cut = cuts_in_order(related.times[rows][order], [1 - n_taken / len(rows)])[0]
        return rows[order[:cut]], rows[order[cut:]], False
    return _take(rows, n_taken, strata, seed)


def _take_groups(rows: Rows, n_taken: int, groups: Kinds, seed: int) -> tuple[Rows, Rows]:
    """Return the rows that stay, and the rows of the groups taken, `n_taken` rows at most.

    Groups are taken in random order while they fit; if none fits, the smallest is taken.
    """
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
    """Return how many rows trials train on by `data.sweep_rows`.

    Raises ConfigError where the number is below two, or not below `n_train`.
    """
    n_part = round(sweep_rows * n_train) if sweep_rows < 1 else int(sweep_rows)
    if not _MIN_TRAIN <= n_part < n_train:
        raise ConfigError(
            f"data.sweep_rows={sweep_rows:.12g}: that is {n_part} of the {n_train} training rows; "
            f"a part is at least {_MIN_TRAIN} of them, and not all: leave data.sweep_rows out to "
            "train on all."
        )
    return n_part


def draw_stratified_part(y: Targets, share: float, seed: int) -> Rows:
    """Return the places of a random share of the rows, evenly by class."""
    strata = _strata(y) if y.dtype == np.int64 else None
    n_part = max(_MIN_TRAIN, round(share * len(y)))
    return np.sort(_take(np.arange(len(y)), n_part, strata, seed)[1])


def regroup_rows(
    split: RowSplit, y: Targets, refit: RefitRows, seed: int, related: RelatedRows = UNRELATED_ROWS
) -> RowSplit:
    """Return the split of a final training: its training rows, and the rows that it stops by.

    The rows that it stops by are the validation part, which may be empty. All training rows are
    taken, even if the search had only a part of them (`data.sweep_rows`). With `rows=train`
    and nothing held out, the validation part is unchanged. Raises ConfigError where too few rows
    are left.
    """
    train, validation = np.concatenate([split.train, split.left]), split.validation
    if refit.rows != TRAIN_ROWS:
        train, validation = np.concatenate([train, validation]), validation[:0]
    test = split.test
    if refit.rows == ALL_ROWS:
        train, test = np.concatenate([train, test]), test[:0]
    stratified = split.stratified
    if refit.hold_out is not None:
        n_held = max(1, round(len(train) * refit.hold_out))
        if len(train) - n_held < _MIN_TRAIN:
            raise ConfigError(
                f"hold_out={refit.hold_out}: {len(train)} rows leave too few to train on. "
                "Give a smaller share, or leave it out."
            )
        strata = _strata(y) if y.dtype == np.int64 else None
        train, validation, stratified = _take_related(train, n_held, strata, seed, related)
    left = train[:0]
    return RowSplit(np.sort(train), np.sort(validation), np.sort(test), left, stratified)


def _take(rows: Rows, n_taken: int, strata: Rows | None, seed: int) -> tuple[Rows, Rows, bool]:
    """Return the rows that stay, the rows taken by chance, and whether each class gave its
    share."""
    if strata is not None:
        counts = np.bincount(strata[rows])
        counts = counts[counts > 0]
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
    """Return (N,) classes in which those too small for all three parts join the largest class.

    One rare class must not stop the others from being split evenly. The result is None where fewer
    than two classes are large enough.
    """
    counts = np.bincount(classes)
    if (counts >= _N_PARTS).sum() < 2:
        return None
    merged: Rows = np.where(counts < _N_PARTS, counts.argmax(), np.arange(len(counts)))
    return merged[classes]


def take_related_columns(frame: pd.DataFrame, config: DataConfig) -> tuple[RelatedRows, list[str]]:
    """Take the column of `data.group` out of the frame, or of `data.time`, if it is not learned.

    Return the relations that it gives, and lines for people. Raises ConfigError for a column that
    is absent, or has cells without a group or time.
    """
    if config.group is not None:
        column = _related_column(frame, "data.group", config.group, config)
        frame.pop(config.group)
        codes, known = cells.distinct_cells(column)
        _check_all(codes >= 0, column, f"data.group={config.group}", "which group a row is of")
        note = f"data.group={config.group}: {len(known):,} groups, each whole in one part"
        return RelatedRows(groups=codes.astype(np.int64)), [f"{note}; it is not learned from."]
    if config.time is not None:
        column = _related_column(frame, "data.time", config.time, config)
        times = _times(column)
        _check_all(np.isfinite(times), column, f"data.time={config.time}", _WHAT_TIME)
        note = f"data.time={config.time}: later rows judge what earlier ones train"
        if not config.follows(DataRule.learn_time):
            frame.pop(config.time)
            note += "; it is not learned from"
        return RelatedRows(times=times), [f"{note}."]
    return UNRELATED_ROWS, []


_WHAT_TIME = "when a row was, as a number or as 2024-05-31 14:00"


def _related_column(frame: pd.DataFrame, key: str, name: str, config: DataConfig) -> pd.Series[Any]:
    if name == config.target:
        raise ConfigError(f"{key}={name}: this is the target column: name another.")
    if name not in frame.columns:
        listed = ", ".join(map(str, frame.columns[:20])) + (
            ", …" if len(frame.columns) > 20 else ""
        )
        raise ConfigError(
            f"{key}={name}: data.path={config.path} has no such column; it has: {listed}"
        )
    return frame[name]


def _times(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return (N,) numbers that rise with time; NaN where a cell says no time."""
    if cells.holds_numbers(column):
        return cells.column_to_numbers(column)
    parsed = pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
    return cells.column_to_numbers(parsed)


def _check_all(known: npt.NDArray[np.bool_], column: pd.Series[Any], key: str, what: str) -> None:
    if known.all():
        return
    n_unknown = int((~known).sum())
    first = column[~known].iloc[0]
    raise ConfigError(
        f"{key}: {n_unknown:,} of {len(known):,} rows do not say {what}, the first of them "
        f"{str(first)[:50]!r}: mend or remove those rows."
    )
