"""The table of trials under the names that Optuna's `study.trials_dataframe()` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from automl.record.trial_record import TrialRecord
from automl.trial import StudyMetrics, TrialState

_GROUPS = (
    *("number", "value", "values_", "datetime_start", "datetime_complete", "duration"),
    *("params_", "user_attrs_", "state"),
)
"""The columns in their order; names that end in `_` begin those of several columns."""
_STATES = {
    TrialState.FINISHED: "COMPLETE",
    TrialState.PRUNED: "PRUNED",
    TrialState.FAILED: "FAIL",
}
"""The states of Optuna; a trial that has not ended is RUNNING there."""


def optuna_row(trial: TrialRecord, metrics: StudyMetrics) -> dict[str, Any]:
    """Return the row of a trial by Optuna's names, with times as Unix seconds."""
    names = [metric.name for metric in metrics.metrics]
    values: dict[str, float | None] = {"value": trial.value}
    if len(names) > 1:
        values = {f"values_{name}": trial.values.get(name) for name in names}
    noted = {"cause": trial.cause, "device": trial.device or None, **trial.tags}
    return {
        "number": trial.number,
        **values,
        "datetime_start": trial.started,
        "datetime_complete": trial.ended,
        **{f"params_{name}": value for name, value in trial.params.items()},
        **{f"user_attrs_{name}": text for name, text in noted.items() if text is not None},
        "state": _STATES.get(trial.state, "RUNNING"),
    }


def optuna_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns in Optuna's order; params and attributes stand in that of their names."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = []
    for group in _GROUPS:
        is_many = group.endswith("_")
        found = [name for name in names if name == group or (is_many and name.startswith(group))]
        columns += found if group == "values_" else sorted(found)
        if not found and not is_many and (group == "duration" or not rows):
            columns.append(group)
    return columns
