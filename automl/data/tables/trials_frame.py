"""The trials of a study as a DataFrame, under names of ours or of Optuna's `trials_dataframe`, and
its leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from automl.config.command_arguments import TrialColumns
from automl.data.tables.frames import Frame, frame_from_records
from automl.record.leaderboard import MAIN_METRICS, leaderboard, model_file_sizes
from automl.record.optuna_columns import optuna_columns, optuna_row
from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TRIAL_COLUMNS, trial_row


def trials_frame(record: StudyRecord, columns: TrialColumns) -> Frame:
    """Return the trials of a study, by number."""
    trials = record.trials.values()
    if columns is TrialColumns.optuna:
        return _optuna_frame([optuna_row(trial, record.metrics) for trial in trials])
    return frame_from_records([trial_row(t) for t in trials], TRIAL_COLUMNS, index="trial")


def _optuna_frame(rows: Sequence[Mapping[str, Any]]) -> Frame:
    """Return rows of `optuna_row` with Optuna's types; times are the machine's local ones."""
    import pandas as pd

    frame = frame_from_records(rows, optuna_columns(rows), index="number")
    for name in ("datetime_start", "datetime_complete"):
        cells = [row[name] for row in rows]
        times = [pd.NaT if s is None else datetime.fromtimestamp(s) for s in cells]
        frame[name] = pd.Series(times, index=frame.index, dtype="datetime64[us]")
    frame["duration"] = frame["datetime_complete"] - frame["datetime_start"]
    return frame


def leaderboard_frame(directory: Path) -> Frame:
    """Return the leaderboard of the study in a folder, which `StudyHandle.leaderboard` describes.
    Raises ConfigError."""
    record = read_study(directory)
    board = leaderboard(record, model_file_sizes(StudyFiles(directory), record.trials))
    metrics = [name for name in MAIN_METRICS if any(name in row.scores for row in board)]
    rows = [
        {
            "model": row.name if row.trial is None else row.trial,
            "family": row.family,
            "value": row.value,
            **{name: row.scores[name].value for name in metrics if name in row.scores},
            "test": None if row.test is None else row.test.value,
            "seconds": row.fit_seconds,
            "rows_per_second": row.rows_per_second,
            "size_bytes": row.size_bytes,
            "weight": row.weight,
        }
        for row in board
    ]
    costs = ("test", "seconds", "rows_per_second", "size_bytes", "weight")
    columns = ("model", "family", "value", *metrics, *costs)
    return frame_from_records(rows, columns, index="model")
