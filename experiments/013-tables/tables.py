"""The tables that tools are compared on, and how each is divided into rows to learn from and rows
to be scored on.

Public ones from a folder, real ones of R's packages (real.py), those that scikit-learn brings
along, and generated ones (generated.py).
Nothing here needs this project: numpy, pandas and scikit-learn do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from generated import BY_GROUP, BY_TIME, KINDS
from real import CLASS_TABLES, REAL
from sklearn import datasets
from sklearn.model_selection import GroupShuffleSplit, train_test_split

TARGET = "target"
CLASSES, AMOUNTS = "classification", "regression"
PUBLIC = ("adult", "winequality", "horse-colic")
BUNDLED = ("breast-cancer", "wine", "iris", "digits", "diabetes")
N_SPLITS = 3
TEST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, whose target is the column `target`."""

    name: str
    frame: pd.DataFrame
    """Numbered by its index from 0."""
    task: str
    time: str | None = None
    """The column by which the rows come one after another."""
    group: str | None = None
    """The column of what belongs together; the test part has other groups."""
    n_test: int | None = None
    """The last rows, which the first split tests on, as whoever published the table does."""


@dataclass(frozen=True, eq=False)
class Split:
    """What one run of a tool learns from, and is scored on."""

    table: str
    task: str
    number: int
    train: pd.DataFrame
    test: pd.DataFrame


def names(data: Path | None) -> tuple[str, ...]:
    """Return the names of all tables: the public ones need the folder `data`, of the real ones only
    those in it count."""
    real = [name for name in REAL if data is not None and _real_path(name, data).exists()]
    return (*(PUBLIC if data else ()), *real, *BUNDLED, *KINDS)


def table(name: str, data: Path | None = None) -> Table:
    """Raises KeyError for a name that there is none of."""
    if name in PUBLIC and data is not None:
        return _public(name, data)
    if name in REAL and data is not None:
        kind = CLASSES if name in CLASS_TABLES else AMOUNTS
        return Table(name, pd.read_csv(_real_path(name, data)), kind)
    if name in BUNDLED:
        return _bundled(name)
    number = list(KINDS).index(name) if name in KINDS else -1
    frame = KINDS[name](np.random.default_rng([2026, number]))
    task = CLASSES if pd.api.types.is_string_dtype(frame[TARGET]) else AMOUNTS
    return Table(name, frame, task, time=BY_TIME.get(name), group=BY_GROUP.get(name))


def splits(table: Table, numbers: Sequence[int] = range(N_SPLITS)) -> Iterator[Split]:
    """A quarter of the rows for the test, even by class. Of rows in order a fifth of them, which
    comes after what is learned from: the first split leaves out what comes later still."""
    for number in numbers:
        train, test = _rows(table, number)
        yield Split(
            *(table.name, table.task, number), table.frame.loc[train], table.frame.loc[test]
        )


def _rows(table: Table, number: int) -> tuple[pd.Index, pd.Index]:
    index = table.frame.index
    if table.time is not None:
        begin, n = (6 + number % N_SPLITS) * len(index) // 10, len(index) // 5
        return index[:begin], index[begin : begin + n]
    if table.n_test is not None and number == 0:
        return index[: -table.n_test], index[-table.n_test :]
    if table.group is not None:
        divide = GroupShuffleSplit(1, test_size=TEST_SHARE, random_state=number)
        train, test = next(divide.split(index, groups=table.frame[table.group]))
        return index[train], index[test]
    stratify = table.frame[TARGET] if table.task == CLASSES else None
    share = table.n_test or TEST_SHARE
    train, test = train_test_split(
        index.to_numpy(), test_size=share, random_state=number, stratify=stratify
    )
    return pd.Index(train), pd.Index(test)


def _real_path(name: str, data: Path) -> Path:
    return data / f"real-{name}.csv"


def _public(name: str, data: Path) -> Table:
    if name == "adult":
        parts = [pd.read_csv(data / f"adult-{part}.csv") for part in ("train", "test")]
        frame = pd.concat(parts, ignore_index=True).rename(columns={"income": TARGET})
        return Table(name, frame, CLASSES, n_test=len(parts[1]))
    if name == "winequality":
        wine = pd.read_csv(data / "winequality-white.csv").rename(columns={"quality": TARGET})
        return Table(name, wine.astype({TARGET: float}), AMOUNTS)
    horse = pd.read_csv(data / "horse-colic.csv", na_values="?").dropna(subset="outcome")
    outcome = "outcome " + horse.outcome.astype(int).astype(str)
    frame = horse.drop(columns="outcome").assign(**{TARGET: outcome}).reset_index(drop=True)
    return Table(name, frame, CLASSES)


def _bundled(name: str) -> Table:
    loaded = getattr(datasets, f"load_{name.replace('-', '_')}")(as_frame=True)
    if name == "diabetes":
        return Table(name, loaded.frame, AMOUNTS)
    labels = [f"class {number}" for number in loaded.target]
    return Table(name, loaded.data.assign(**{TARGET: labels}), CLASSES)
