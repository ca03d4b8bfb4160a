"""Rows of a table as they came, before anything is learned of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from automl.config import DataConfig, DataKind
from automl.data.frame import Frame
from automl.data.generated import NAMES, Purpose, disc
from automl.data.source import digits_source, table_source


def raw_rows(config: DataConfig, n_rows: int) -> list[dict[str, Any]]:
    """So many rows, evenly spread over the table, or all: a value by column.

    Raises ConfigError for a table that cannot be read.
    """
    frame = _frame(config)
    n_taken = min(n_rows, len(frame))
    frame = frame.iloc[np.linspace(0, len(frame) - 1, n_taken).astype(int)]
    names = [str(name).strip() for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def frame_of_rows(rows: Sequence[Mapping[str, Any]]) -> Frame:
    """As `predict` takes them."""
    return pd.DataFrame(list(rows))


def _frame(config: DataConfig) -> pd.DataFrame:
    match config.kind:
        case DataKind.disc:
            points = disc(config.n_validation, config.split_seed, Purpose.validation)
            return pd.DataFrame(points.rows.numbers, columns=pd.Index(NAMES))
        case DataKind.digits:
            return digits_source().frame
        case _:
            return table_source(config).frame
