"""Columns that say which rows belong together (`data.group`) or come later (`data.time`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from automl.config import DataConfig
from automl.data import cells
from automl.data.split import BY_CHANCE, Related
from automl.errors import ConfigError


def take_related(frame: pd.DataFrame, config: DataConfig) -> tuple[Related, list[str]]:
    """What the columns say, which are taken out of the frame; and lines for people.

    Raises ConfigError for a column that is not there, or does not say it of every row.
    """
    if config.group is not None:
        column = _pop(frame, "data.group", config.group, config)
        codes, known = cells.distinct(column)
        _check_all(codes >= 0, column, f"data.group={config.group}", "which group a row is of")
        said = f"data.group={config.group}: {len(known):,} groups, each whole in one part"
        return Related(groups=codes.astype(np.int64)), [f"{said}; it is not learned from."]
    if config.time is not None:
        column = _pop(frame, "data.time", config.time, config)
        times = _times(column)
        _check_all(np.isfinite(times), column, f"data.time={config.time}", _WHAT_TIME)
        said = f"data.time={config.time}: later rows judge what earlier ones train"
        return Related(times=times), [f"{said}; it is not learned from."]
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
