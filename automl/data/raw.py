"""Rows of a table as they came, before anything is learned of them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from automl.config import DataConfig, DataKind
from automl.data.frame import Frame
from automl.data.generated import Purpose, disc, frame_of_points
from automl.data.source import digits_source, table_source


def raw_rows(config: DataConfig, n_rows: int) -> list[dict[str, Any]]:
    """So many rows, evenly spread over the table, or all: a value by column.

    Raises ConfigError for a table that cannot be read.
    """
    frame = _frame(config)
    n_taken = min(n_rows, len(frame))
    return rows_of(frame.iloc[np.linspace(0, len(frame) - 1, n_taken).astype(int)])


def plain_frame(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Frame:
    """These columns of the rows, with cells as JSON has them: None where one is missing, seconds
    for times."""
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


def rows_of(frame: Frame) -> list[dict[str, Any]]:
    """A value by column each."""
    names = [str(name).strip() for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def frame_of_rows(rows: Sequence[Mapping[str, Any]]) -> Frame:
    """As `predict` takes them."""
    return pd.DataFrame(list(rows))


def _frame(config: DataConfig) -> pd.DataFrame:
    match config.kind:
        case DataKind.disc:
            return frame_of_points(disc(config.n_validation, config.split_seed, Purpose.validation))
        case DataKind.digits:
            return digits_source().frame
        case _:
            return table_source(config).frame
