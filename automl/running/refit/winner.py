"""Which trial of a study is trained again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.trial import TrialState

_MAX_LISTED = 20


def winner(record: StudyRecord, number: int | None, study: StudyConfig) -> TrialRecord:
    """The best trial, or that of this number. Raises ConfigError where it has no value yet."""
    best = record.best()
    if best is None:
        raise ConfigError(
            f"study.name={study.name}: no trial of it has ended with a value yet "
            f"({_counted(record.counts())}), so that there is no winner to train again. Go on with "
            f"it first: {command_line('resume', study)}"
        )
    if number is None:
        return best
    found = record.trials.get(number)
    if found is None:
        ranked = [str(trial.number) for trial in record.ranking()]
        more = f" and {len(ranked) - _MAX_LISTED} more" if len(ranked) > _MAX_LISTED else ""
        raise ConfigError(
            f"refit.trial={number}: study {study.name} has no such trial. Its trials, best first: "
            f"{', '.join(ranked[:_MAX_LISTED])}{more}."
        )
    if found.value is None:
        raise ConfigError(
            f"refit.trial={number}: this trial has no value ({found.state.value}"
            f"{f': {found.cause}' if found.cause else ''}). Name one that finished, or leave it "
            f"out for the best, trial {best.number}."
        )
    return found


def _counted(counts: Mapping[TrialState, int]) -> str:
    return ", ".join(f"{n} {state.value}" for state, n in counts.items() if n) or "it has none"
