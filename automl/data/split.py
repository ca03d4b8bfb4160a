"""Which rows train, which choose among trials, and which no sweep ever sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import train_test_split

from automl.config import DataConfig
from automl.config.refit import ALL, TRAIN
from automl.data.dataset import RefitRows, Targets
from automl.errors import ConfigError

_MIN_TRAIN = 2
_N_PARTS = 3

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of each part; together all rows, each once."""

    train: Rows
    validation: Rows
    test: Rows
    """Empty where `data.test_path` gives a table of its own."""
    left: Rows
    """Training rows that no trial trains on (`data.sweep_rows`)."""
    stratified: bool
    """Every class has its share in each part (but for classes of fewer than three rows)."""


def split_rows(y: Targets, config: DataConfig) -> Split:
    """Split by `data.split_seed`, and evenly by class where `y` (N,) holds class numbers.

    Raises ConfigError when there are too few rows.
    """
    n_rows = len(y)
    n_test = 0 if config.test_path is not None else max(1, round(n_rows * config.test_fraction))
    n_validation = max(1, round(n_rows * config.validation_fraction))
    n_least = _MIN_TRAIN + 1 + (n_test > 0)
    if n_rows - n_test - n_validation < _MIN_TRAIN:
        raise ConfigError(
            f"data.path={config.path}: {n_rows} rows with a target cannot be split into training, "
            f"validation{' and test' if n_test else ''} ({n_rows - n_test - n_validation}, "
            f"{n_validation}{f', {n_test}' if n_test else ''} rows): {n_least} are the least. "
            "Give more rows, or a smaller data.validation_fraction or data.test_fraction."
        )
    strata = _strata(y) if y.dtype == np.int64 else None
    rest, stratified = np.arange(n_rows), strata is not None
    test = rest[:0]
    if n_test:
        rest, test, done = _take(rest, n_test, strata, config.split_seed)
        stratified &= done
    train, validation, done = _take(rest, n_validation, strata, config.split_seed)
    stratified &= done
    left = train[:0]
    if config.sweep_rows is not None:
        n_part = _n_part(len(train), config.sweep_rows)
        left, train, done = _take(train, n_part, strata, config.split_seed)
        stratified &= done
    return Split(np.sort(train), np.sort(validation), np.sort(test), np.sort(left), stratified)


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


def part_of(y: Targets, share: float, seed: int) -> Rows:
    """Places of a share of the rows, evenly by class."""
    strata = _strata(y) if y.dtype == np.int64 else None
    n_part = max(_MIN_TRAIN, round(share * len(y)))
    return np.sort(_take(np.arange(len(y)), n_part, strata, seed)[1])


def regrouped(split: Split, y: Targets, refit: RefitRows, seed: int) -> Split:
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
        train, validation, stratified = _take(train, n_held, strata, seed)
    left = train[:0]
    return Split(np.sort(train), np.sort(validation), np.sort(test), left, stratified)


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
