"""How the trials of a study ended, read back from what Optuna keeps of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.search.excess import BARE, excess_of
from automl.trial import Failed, Finished, Params, Pruned, TooLarge, TrialState


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has ended, as the study tells it; what it does not keep is said in the cause."""

    number: int
    params: Params
    began: float
    """When it was asked for (Unix seconds)."""
    outcome: Finished | Pruned | TooLarge | Failed


def state_of(trial: FrozenTrial) -> TrialState:
    """Of a trial that has ended."""
    if trial.state is OptunaState.COMPLETE:
        return TrialState.FINISHED
    if trial.state is OptunaState.PRUNED and BARE not in trial.constraints:
        return TrialState.PRUNED
    return TrialState.FAILED


def outcome_of(trial: FrozenTrial) -> Finished | Pruned | TooLarge | Failed:
    """How a trial ended, of which Optuna keeps no more than state, value, time and excess."""
    number, at = trial.number, seconds_of(trial.datetime_complete)
    value = trial.values[0] if trial.values else math.nan
    match state_of(trial):
        case TrialState.FINISHED:
            return Finished(number, at, value)
        case TrialState.PRUNED if (known := excess_of(trial)) is not None:
            return TooLarge(number, at, _NO_ROOM, *known)
        case TrialState.PRUNED:
            return Pruned(number, at, step=trial.last_step or 0, value=value)
        case _ if trial.state is OptunaState.PRUNED:
            return Failed(number, at, _NO_ROOM)
        case _:
            return Failed(
                number, at, "unknown: the event log lost it, and the study keeps no cause"
            )


_NO_ROOM = "does not fit in any device's memory (the event log lost the rest)"


def seconds_of(time: datetime | None) -> float:
    """Unix seconds; 0 where it is not known."""
    return 0.0 if time is None else time.timestamp()
