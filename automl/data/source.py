"""A table with its target decided, before it is split: a file, or scikit-learn's digits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config import DataConfig, Task
from automl.data import cells
from automl.data.columns import numbers_divided_by
from automl.data.dataset import Targets
from automl.data.preprocessing import Preprocessing
from automl.data.related import take_related
from automl.data.split import BY_CHANCE, Related
from automl.data.table import TableFile
from automl.data.target import (
    Target,
    amounts_in,
    are_labels_verbatim,
    decide_target,
    has_target,
    named,
    verbatim_target,
)
from automl.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Source:
    """All rows that have a target, as they came, and what is known of them without a split."""

    name: str
    frame: pd.DataFrame
    """The columns to learn from."""
    y: Targets
    cells: pd.Series[Any]
    """The target's, as they came."""
    target: Target
    content_digest: str
    """SHA-256 of the content, in hex."""
    notes: tuple[str, ...]
    preprocessing: Preprocessing | None = field(default=None)
    """None: to be learned from the training part."""
    related: Related = BY_CHANCE
    """What of its rows is not by chance."""


def table_source(config: DataConfig) -> Source:
    """The table of `data.path`. Raises ConfigError for one that cannot be learned from."""
    assert config.path is not None, "checked by DataConfig"
    assert config.target is not None, "checked by DataConfig"
    file = TableFile.at("data.path", config.path)
    frame = file.read(config.target, detect_verbatim=config.detect_verbatim)
    column = frame[config.target]
    verbatim = config.detect_verbatim and are_labels_verbatim(column, config.task)
    reading = None
    if config.detect_target and not verbatim:
        reading = amounts_in(column, config.task)
    known = has_target(column, reading, verbatim=verbatim)
    if not known.any():
        raise ConfigError(
            f"data.target={config.target}: the column is empty in all {len(frame)} rows of "
            f"data.path={config.path}: choose another column."
        )
    notes = [f"{file.path.name}: {len(frame):,} rows, {len(frame.columns) - 1} columns."]
    notes += dropped_note(config.target, column, known)
    frame = frame[known]
    column = frame.pop(config.target)
    if verbatim:
        target = verbatim_target(column, config.target, config.task)
    else:
        target = decide_target(column, config.target, config.task, reading)
    related, said = take_related(frame, config)
    row_numbers = _row_numbers(frame)
    if row_numbers:
        notes.append(f"left out, being row numbers: {', '.join(row_numbers)}.")
        frame = frame.drop(columns=row_numbers)
    return Source(
        name=file.path.stem,
        frame=frame,
        y=target.encode(column, "data.path"),
        cells=column,
        target=target,
        content_digest=file.digest(),
        notes=(*notes, target.taken_as, *said),
        related=related,
    )


def read_test_table(
    config: DataConfig, target: Target, verbatim: Sequence[str]
) -> tuple[pd.DataFrame, Targets, str]:
    """The rows of `data.test_path` that have a target, their `y`, and the file's digest in hex.

    The columns `verbatim` hold codes, which are read as they are written. Raises ConfigError.
    """
    file = open_test_table(config)
    codes = [*verbatim, target.name] if target.verbatim else verbatim
    frame = file.read(target.name, verbatim=codes)
    known = has_target(frame[target.name], target.reading, verbatim=target.verbatim)
    frame = frame[known]
    if not len(frame):
        raise file.error(f"no row has a value of {target.name}: give a test table with targets.")
    return frame, target.encode(frame[target.name], "data.test_path"), file.digest()


def open_test_table(config: DataConfig) -> TableFile:
    """The table of `data.test_path`, its header checked. Raises ConfigError."""
    assert config.path is not None, "checked by DataConfig"
    assert config.target is not None, "checked by DataConfig"
    assert config.test_path is not None, "asked for only where it is set"
    file = TableFile.at("data.test_path", config.test_path)
    if file.path.samefile(TableFile.at("data.path", config.path).path):
        raise file.error(
            "is the training table itself: give other rows, or keep some by data.test_fraction=0.2."
        )
    file.check_target(config.target)
    return file


def digits_source() -> Source:
    """scikit-learn's 8×8 images, 1,797 rows; grey values 0 to 16 become 0 to 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    target = Target("digit", Task.classification, tuple(range(10)), "digit: 10 classes.")
    return Source(
        name="digits",
        frame=pd.DataFrame(x, columns=pd.Index(names)),
        y=y.astype(np.int64),
        cells=pd.Series(y),
        target=target,
        content_digest=hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(),
        notes=(f"digits: {len(y):,} images of 8×8 pixels, 10 classes.",),
        preprocessing=Preprocessing(numbers_divided_by(16.0, names)),
    )


def dropped_note(target: str, column: pd.Series[Any], known: npt.NDArray[np.bool_]) -> list[str]:
    """What is said of rows without a target: nothing where there are none. Rows count from 1."""
    dropped = np.flatnonzero(~known)
    if not len(dropped):
        return []
    rows = "1 row" if len(dropped) == 1 else f"{len(dropped):,} rows"
    there = column.iloc[dropped]
    n_large = int((pd.to_numeric(there, errors="coerce").abs() > cells.LARGEST).sum())
    said = f", {n_large:,} of them infinite or too large" if n_large else ""
    return [f"dropped {rows} without a value of {target}{said} ({named(dropped)})."]


def _row_numbers(frame: pd.DataFrame) -> list[str]:
    """Columns that count the rows, as `to_csv` writes them: in a sorted table they tell the target.

    Dropped rows leave gaps, hence rising and not 0, 1, 2.
    """
    return [
        str(name)
        for name in frame.columns
        if str(name).startswith("Unnamed: ")
        and frame[name].dtype.kind == "i"
        and bool((np.diff(frame[name].to_numpy()) > 0).all())
    ]
