"""Tables before they are split, with their target decided: a file, or scikit-learn's digits.

Nothing is learned of the columns here. Raw rows are handed out by `raw_rows`. `evaluate to=DIR`
writes the parts of a table for other tools: `train.csv`, `validation.csv` and `test.csv`, and
`left.csv` with the training rows that `data.sweep_rows` leaves out. Cells are as they were read,
rows in the table's order.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config import DataConfig, DataKind, DataRule, Task
from automl.data import cells
from automl.data.columns import make_divided_columns
from automl.data.dataset import DiscPart, Targets, disc_frame, make_disc, spread_places
from automl.data.preprocessing import Preprocessing
from automl.data.split import UNRELATED_ROWS, RelatedRows, RowSplit, take_related_columns
from automl.data.tables.frames import Frame
from automl.data.tables.table_file import TableFile
from automl.data.target import (
    TargetColumn,
    are_labels_verbatim,
    decide_target,
    detect_target_amounts,
    has_target,
    large_targets,
    named_rows,
    one_class_error,
    verbatim_target,
)
from automl.errors import ConfigError
from automl.record.disk import make_folder, write_durably
from automl.record.texts import counted


@dataclass(frozen=True, eq=False)
class TableSource:
    """All rows of a table that have a target, with raw cells, before they are split."""

    name: str
    frame: pd.DataFrame
    """The columns to learn from."""
    y: Targets
    cells: pd.Series[Any]
    """The raw cells of the target column."""
    target: TargetColumn
    content_digest: str
    """SHA-256 of the content, in hex."""
    notes: tuple[str, ...]
    preprocessing: Preprocessing | None = field(default=None)
    """Preprocessing known beforehand; None: it is learned from the training part."""
    related: RelatedRows = UNRELATED_ROWS
    """Relations among the rows that a split must respect."""


def load_table_source(config: DataConfig) -> TableSource:
    """Return the table of `data.path`. Raises ConfigError where it cannot be learned from."""
    assert config.path is not None, "checked by DataConfig"
    assert config.target is not None, "checked by DataConfig"
    file = TableFile.at("data.path", config.path)
    file.check_target(config.target)
    if (value := file.only_value(config.target)) is not None:
        raise one_class_error(config.target, value)
    frame = file.read(config.target, detect_verbatim=config.follows(DataRule.detect_verbatim))
    column = frame[config.target]
    verbatim = config.follows(DataRule.detect_verbatim) and are_labels_verbatim(column, config.task)
    reading = None
    if config.follows(DataRule.detect_target) and not verbatim:
        reading = detect_target_amounts(column, config.task)
    known = has_target(column, reading, verbatim=verbatim)
    if not known.any():
        large = large_targets(column)
        what = "has no usable value" if large else "is empty"
        raise ConfigError(
            f"data.target={config.target}: the column {what} in all {len(frame)} rows of "
            f"data.path={config.path}: choose another column{large}."
        )
    n_columns = counted(len(frame.columns) - 1, "column")
    notes = [f"{file.path.name}: {counted(len(frame), 'row')}, {n_columns}."]
    notes += dropped_rows_notes(config.target, column, known)
    if not known.all():  # else the rows would be a second copy of the table
        frame = frame[known]
    column = frame.pop(config.target)
    if verbatim:
        target = verbatim_target(column, config.target, config.task)
    else:
        target = decide_target(column, config.target, config.task, reading)
    related, related_notes = take_related_columns(frame, config)
    row_numbers = _row_numbers(frame)
    if row_numbers:
        notes.append(f"left out, being row numbers: {', '.join(row_numbers)}.")
        frame = frame.drop(columns=row_numbers)
    return TableSource(
        name=file.path.stem,
        frame=frame,
        y=target.encode(column, "data.path"),
        cells=column,
        target=target,
        content_digest=file.digest(),
        notes=(*notes, target.taken_as, *related_notes),
        related=related,
    )


def read_test_table(
    config: DataConfig, target: TargetColumn, verbatim: Sequence[str]
) -> tuple[pd.DataFrame, Targets, str]:
    """Return the rows of `data.test` that have a target, their `y`, and the file's digest.

    The columns `verbatim` hold codes, which are read as they are written. The digest is in hex.
    Raises ConfigError for a table without targets, or with unknown ones.
    """
    file = open_test_table(config)
    codes = [*verbatim, target.name] if target.verbatim else verbatim
    frame = file.read(target.name, verbatim=codes)
    known = has_target(frame[target.name], target.reading, verbatim=target.verbatim)
    large = "" if known.any() else large_targets(frame[target.name])
    frame = frame[known]
    if not len(frame):
        raise file.error(
            f"no row has a value of {target.name}: give a test table with targets{large}."
        )
    return frame, target.encode(frame[target.name], "data.test"), file.digest()


def open_test_table(config: DataConfig) -> TableFile:
    """Return the table of `data.test`, its header checked. Raises ConfigError."""
    assert config.path is not None, "checked by DataConfig"
    assert config.target is not None, "checked by DataConfig"
    assert config.test_path is not None, "asked for only where it is set"
    file = TableFile.at("data.test", config.test_path)
    if file.path.samefile(TableFile.at("data.path", config.path).path):
        raise file.error(
            "is the training table itself: give other rows, or keep some by data.test=0.2."
        )
    file.check_target(config.target)
    return file


def load_digits_source() -> TableSource:
    """Return scikit-learn's 8×8 images, 1,797 rows; grey values 0 to 16 become 0 to 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    target = TargetColumn("digit", Task.classification, tuple(range(10)), "digit: 10 classes.")
    return TableSource(
        name="digits",
        frame=pd.DataFrame(x, columns=pd.Index(names)),
        y=y.astype(np.int64),
        cells=pd.Series(y),
        target=target,
        content_digest=hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest(),
        notes=(f"digits: {len(y):,} images of 8×8 pixels, 10 classes.",),
        preprocessing=Preprocessing(make_divided_columns(16.0, names)),
    )


def dropped_rows_notes(
    target: str, column: pd.Series[Any], known: npt.NDArray[np.bool_]
) -> list[str]:
    """Return one line about the rows without a target, or no line if all rows have one.

    Rows count from 1.
    """
    dropped = np.flatnonzero(~known)
    if not len(dropped):
        return []
    rows = "1 row" if len(dropped) == 1 else f"{len(dropped):,} rows"
    n_large = cells.count_too_large(column.iloc[dropped])
    large = f", {n_large:,} of them infinite or too large" if n_large else ""
    return [f"dropped {rows} without a value of {target}{large} ({named_rows(dropped)})."]


def _row_numbers(frame: pd.DataFrame) -> list[str]:
    """Return the columns that count the rows, as `to_csv` writes them.

    In a sorted table they tell the target. Dropped rows leave gaps, so that the numbers need only
    rise.
    """
    return [
        str(name)
        for name in frame.columns
        if str(name).startswith("Unnamed: ")
        and frame[name].dtype.kind == "i"
        and bool((np.diff(frame[name].to_numpy()) > 0).all())
    ]


def raw_rows(config: DataConfig, n_rows: int) -> list[dict[str, Any]]:
    """Return `n_rows` rows, evenly spread over the table, or all: a value by column for each.

    Raises ConfigError for a table that cannot be read.
    """
    frame = _frame(config)
    return records_of_rows(frame.iloc[spread_places(len(frame), n_rows)])


def plain_frame(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Frame:
    """Return these columns of the rows, with cells as JSON has them.

    A missing cell is None; times are seconds.
    """
    cells = [[_plain(row[name]) for name in names] for row in rows]
    return pd.DataFrame(cells, columns=pd.Index(list(names), dtype=object), dtype=object)


def _plain(cell: Any) -> Any:
    if cell is None or cell is pd.NaT or cell is pd.NA or cell != cell:
        return None
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    if isinstance(cell, datetime.datetime):
        return cell.replace(tzinfo=cell.tzinfo or datetime.UTC).timestamp()
    value = cell.item() if isinstance(cell, np.generic) else cell
    return value if isinstance(value, bool | int | float) else str(value)


def records_of_rows(frame: Frame) -> list[dict[str, Any]]:
    """Return a value by column for each row of the frame."""
    names = [str(name).strip() for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def frame_from_rows(rows: Sequence[Mapping[str, Any]]) -> Frame:
    """Return a frame of the rows, which `predict` takes."""
    return pd.DataFrame(list(rows))


def _frame(config: DataConfig) -> pd.DataFrame:
    match config.kind:
        case DataKind.disc:
            return disc_frame(
                make_disc(config.n_validation, config.split_seed, DiscPart.validation)
            )
        case DataKind.digits:
            return load_digits_source().frame
        case _:
            return load_table_source(config).frame


PARTS = ("train", "validation", "test", "left")


def write_split(folder: Path, source: TableSource, split: RowSplit) -> None:
    """Write the parts that have rows; a file that holds its part already is left as it is.

    Raises ConfigError for a file that holds something else, and where none can be written.
    """
    frame = source.frame.assign(**{source.target.name: source.cells})
    parts = {folder / f"{name}.csv": getattr(split, name) for name in PARTS}
    parts = {path: frame.iloc[rows] for path, rows in parts.items() if len(rows)}
    texts = {path: _csv_text(part) for path, part in parts.items()}
    try:
        make_folder(folder)
        for path, part in parts.items():
            is_free = not path.exists() or path.read_bytes() == texts[path].encode()
            # Earlier versions wrote whole numbers beside missing cells as floats.
            if not is_free and path.read_bytes() != part.to_csv(index=False).encode():
                raise _holds_other_rows(path)
        for path, text in texts.items():
            if not path.exists():
                write_durably(path, text)
    except OSError as error:
        raise ConfigError(
            f"to={folder}: cannot be written ({error.strerror}): name another folder."
        ) from error


def _csv_text(frame: pd.DataFrame) -> str:
    """Return the rows as CSV; whole numbers are written as such, also beside missing cells."""
    return str(frame.apply(_whole_beside_gaps).to_csv(index=False))


def _whole_beside_gaps(column: pd.Series[Any]) -> pd.Series[Any]:
    present = column.dropna()
    is_float = column.dtype == np.float64 and len(present) < len(column)
    is_whole = is_float and bool(((present % 1 == 0) & (present.abs() < 2**53)).all())
    return column.astype("Int64") if is_whole else column


def _holds_other_rows(path: Path) -> ConfigError:
    """Return the error for a file of that name, which may be a table of the user's, even
    `data.path` itself."""
    return ConfigError(
        f"to={path.parent}: {path.name} is there and holds something else, which is "
        "not written over: name another folder, or move that file away."
    )
