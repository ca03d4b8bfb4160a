"""Translate spaces and trials between this package and Optuna.

It makes Optuna's distributions and running trials, reads back how trials ended, and writes notes
for readers who use Optuna's own tools. Storages are opened in `storage.py`.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.record.texts import fit_line
from automl.search.domains import ChoiceDomain, FixedDomain, RangeDomain
from automl.search.samplers.memory_wall import AT_LEAST_KEY, BARE_KEY, EXCESS_KEY, stored_excess
from automl.search.search_space import EnqueuedPoint, SearchSpace, SpaceParam
from automl.search.storage import IMPORTED, OUTSIDE_SPACE, REQUEST, load_optuna_study
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    MetricPoint,
    Params,
    PrunedOutcome,
    StudyMetrics,
    TooLargeOutcome,
    TrialOutcome,
    TrialState,
    trial_name,
)

BegunTrials: TypeAlias = Mapping[int, Params]
"""The params of the trials that have begun, by number."""
NO_TRIALS: BegunTrials = {}


def optuna_distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution for each searched param of the space, by name."""
    return {param.name: optuna_distribution(param) for param in space.params if param.is_searched}


def optuna_distribution(param: SpaceParam) -> BaseDistribution:
    """Return Optuna's distribution for a searched param."""
    match param.domain:
        case ChoiceDomain(values):
            return CategoricalDistribution(values)
        case RangeDomain(low=int(low), high=int(high), log=log, step=step):
            return IntDistribution(low, high, log=log, step=int(step or 1))
        case RangeDomain(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=step)
        case FixedDomain():
            raise AssertionError(f"{param.name} is fixed and not searched")


def optuna_running_trial(
    number: int,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    user_attrs: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """Return a running trial for Optuna, as it is when it begins."""
    return FrozenTrial(
        number=number,
        trial_id=-1,  # the storage gives it one
        state=optuna.trial.TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs=dict(user_attrs or {}),
        system_attrs={},
        intermediate_values={},
    )


def optuna_new_trial(
    number: int, params: Params, distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Return a new trial for Optuna, with those of its params that have a distribution."""
    searched = {name: d for name, d in distributions.items() if name in params}
    known = {name: params[name] for name in searched}
    return optuna_running_trial(number, known, searched, {MLFLOW_RUN: trial_name(number)})


def restore_trials(
    storage: BaseStorage,
    study_id: int,
    begun: BegunTrials,
    space_at: Callable[[int], SearchSpace],
) -> int:
    """Add the trials to the study that it has lost, as running, and return their number.

    Trials between them that have not begun are added without params. Raises ValueError for params
    that are suggested while a trial runs, whose distributions are not known.
    """
    first, end = len(storage.get_all_trials(study_id, deepcopy=False)), max(begun, default=-1) + 1
    for number in range(first, end):
        params, known = begun.get(number, {}), optuna_distributions(space_at(number))
        if unknown := set(params) - set(space_at(number).names):
            raise ValueError(f"it has lost trial {number} with {', '.join(sorted(unknown))}")
        trial = optuna_new_trial(number, params, known)
        storage.create_new_trial(study_id, template_trial=trial)
    return max(0, end - first)


def complete_running(
    storage: BaseStorage,
    trial: FrozenTrial,
    params: Params,
    distributions: Mapping[str, BaseDistribution],
) -> None:
    """Store what a trial lacks that runs now: params, and the state of a trial that waited."""
    for name, distribution in distributions.items():
        if name in params and name not in trial.params:
            value = distribution.to_internal_repr(params[name])
            storage.set_trial_param(trial._trial_id, name, value, distribution)
    if trial.state is OptunaState.WAITING:
        storage.set_trial_state_values(trial._trial_id, OptunaState.RUNNING)


def mark_enqueued(trial: FrozenTrial, point: EnqueuedPoint, space: SearchSpace) -> None:
    """Make a trial that of a user's point. Values outside the space get distributions of their own,
    and no sampler sees the trial then (`storage.py`): none of them can place these values."""
    outside = point.outside(space)
    trial.distributions |= {n: CategoricalDistribution((v,)) for n, v in outside.items()}
    trial.params |= outside
    trial.system_attrs[REQUEST] = point.request
    if outside:
        trial.system_attrs[OUTSIDE_SPACE] = ", ".join(outside)


@dataclass(frozen=True)
class ImportedRecord:
    """What Optuna keeps of a trial, apart from its params and its end."""

    reports: Mapping[int, float]
    """The reported value by step."""
    tags: Mapping[str, str]
    """The user attributes as texts."""

    @classmethod
    def of(cls, trial: FrozenTrial) -> ImportedRecord:
        tags = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in trial.user_attrs.items()
            if name != MLFLOW_RUN
        }
        return cls(trial.intermediate_values, tags)


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has ended, as Optuna's study has it.

    The cause of its outcome says what the study does not keep.
    """

    number: int
    params: Params
    began: float
    """When the trial was asked for (Unix seconds)."""
    outcome: FinishedOutcome | PrunedOutcome | TooLargeOutcome | FailedOutcome
    imported: ImportedRecord | None = None
    """What is known of a trial that ended in another study; None: it is a trial of ours."""


def trial_state_of(trial: FrozenTrial) -> TrialState:
    """Return the state of a trial that has ended."""
    if trial.state is OptunaState.COMPLETE:
        return TrialState.FINISHED
    if trial.state is OptunaState.PRUNED and BARE_KEY not in trial.constraints:
        return TrialState.PRUNED
    return TrialState.FAILED


def trial_outcome_of(
    trial: FrozenTrial,
) -> FinishedOutcome | PrunedOutcome | TooLargeOutcome | FailedOutcome:
    """Return how a trial ended; Optuna keeps only its state, value, time and excess."""
    number, at = trial.number, unix_seconds(trial.datetime_complete)
    value = trial.values[0] if trial.values else math.nan
    match trial_state_of(trial):
        case TrialState.FINISHED:
            return FinishedOutcome(number, at, value)
        case TrialState.PRUNED if (known := stored_excess(trial)) is not None:
            return TooLargeOutcome(number, at, _NO_ROOM, *known)
        case TrialState.PRUNED:
            return PrunedOutcome(number, at, step=trial.last_step or 0, value=value)
        case _ if trial.state is OptunaState.PRUNED:
            return FailedOutcome(number, at, _NO_ROOM)
        case _:
            return FailedOutcome(
                number, at, "unknown: the event log lost it, and the study keeps no cause"
            )


def show_paused(
    trials: Sequence[FrozenTrial], paused: Mapping[int, tuple[int, float]]
) -> list[FrozenTrial]:
    """Return the trials with paused ones as if they were pruned, so that samplers learn from them.

    `paused` has the last step and the best value of each, by number.
    """
    return [_as_pruned(t, paused[t.number][1]) if t.number in paused else t for t in trials]


def _as_pruned(trial: FrozenTrial, value: float) -> FrozenTrial:
    shown = copy.copy(trial)
    shown.state = OptunaState.PRUNED
    shown.value = value if math.isfinite(value) else None
    shown.datetime_complete = trial.datetime_start
    return shown


def ended_trial(trial: FrozenTrial, params: Params, metrics: StudyMetrics) -> EndedTrial:
    """Return a trial that has ended, with `params`."""
    began, outcome = unix_seconds(trial.datetime_start), trial_outcome_of(trial)
    if isinstance(outcome, FinishedOutcome | PrunedOutcome):
        outcome = replace(outcome, values=stored_values(trial, metrics))
    if IMPORTED not in trial.system_attrs:
        return EndedTrial(trial.number, params, began, outcome)
    if isinstance(outcome, FailedOutcome):
        outcome = replace(outcome, cause=_FAILED_ELSEWHERE)
    return EndedTrial(trial.number, params, began, outcome, ImportedRecord.of(trial))


def optuna_end(outcome: TrialOutcome) -> tuple[OptunaState, TrialState, float | None]:
    """Return Optuna's state and ours of a trial that ends with `outcome`, and its value."""
    match outcome:
        case FinishedOutcome(value=value):
            assert math.isfinite(value), f"trial {outcome.trial}: {value} is no result"
            return OptunaState.COMPLETE, TrialState.FINISHED, value
        case PrunedOutcome(value=best):
            value_or_none = best if math.isfinite(best) else None
            return OptunaState.PRUNED, TrialState.PRUNED, value_or_none
        case TooLargeOutcome():
            return OptunaState.PRUNED, TrialState.PRUNED, None
        case FailedOutcome():
            return OptunaState.FAIL, TrialState.FAILED, None
    raise TypeError(f"{type(outcome).__name__} does not end a trial")


_FAILED_ELSEWHERE = "failed in Optuna's study, which keeps no cause"
_NO_ROOM = "does not fit in any device's memory (the event log lost the rest)"


def unix_seconds(time: datetime | None) -> float:
    """Return `time` in Unix seconds; 0 if it is not known."""
    return 0.0 if time is None else time.timestamp()


MLFLOW_RUN, DEVICE, CAUSE = "mlflow_run", "device", "cause"
"""Keys of the user attributes of a trial."""
MAX_CAUSE_CHARACTERS = 500


def name_metrics(storage: BaseStorage, study_name: str, metrics: StudyMetrics) -> None:
    """Set the names under which Optuna shows values; written once, also to old studies."""
    study = load_optuna_study(RandomSampler(), storage, study_name)
    names = [metric.name for metric in metrics.metrics]
    if study.metric_names != names:
        study.set_metric_names(names)


REACHED = "automl:reached"
"""System attribute of a trial: what it was worth at each rung, in a study of several metrics."""
PRUNED_KEY = "pruned"
"""The constraint that a pruned trial violates in a study of several metrics: no sampler of Optuna's
takes its values for those of a whole trial."""


def store_reached(storage: BaseStorage, trial_id: int, reached: Mapping[int, MetricPoint]) -> None:
    """Store a trial's points at its rungs, from which a resumed study judges; nothing for none."""
    stored: Any = {str(rung): [list(point.keys), point.excess] for rung, point in reached.items()}
    if stored and storage.get_trial(trial_id).system_attrs.get(REACHED) != stored:
        storage.set_trial_system_attr(trial_id, REACHED, stored)


def stored_reached(trial: FrozenTrial) -> dict[int, MetricPoint]:
    """Return the points that `store_reached` stored."""
    stored = trial.system_attrs.get(REACHED, {})
    return {int(at): MetricPoint(tuple(keys), excess) for at, (keys, excess) in stored.items()}


def outcome_values(outcome: TrialOutcome) -> Mapping[str, float]:
    """Return a trial's values by metric; empty in a study of one metric."""
    return outcome.values if isinstance(outcome, FinishedOutcome | PrunedOutcome) else {}


def stored_values(trial: FrozenTrial, metrics: StudyMetrics) -> dict[str, float]:
    """Return the values by metric of a trial that has ended, those with a limit included."""
    if not metrics.are_several or not trial.values:
        return {}
    names = [metric.name for metric in metrics.metrics]
    limited = {limit.name: limit for limit in metrics.limits if limit.name in trial.constraints}
    stored = {n: (trial.constraints[n] + 1) * limit.largest for n, limit in limited.items()}
    return stored | dict(zip(names, trial.values, strict=False))


def storage_values(
    outcome: TrialOutcome, value: float | None, metrics: StudyMetrics
) -> list[float] | None:
    """Return the values that the storage gets, in the order of the metrics; None: some lack."""
    names = [metric.name for metric in metrics.metrics]
    if len(names) == 1:
        return None if value is None else [value]
    values = outcome_values(outcome)
    return [values[name] for name in names] if {*names} <= values.keys() else None


@dataclass(frozen=True)
class TrialNotes:
    """Notes of a trial's end in the storage: for the samplers, and for optuna-dashboard."""

    storage: BaseStorage
    study_name: str
    trial_id: int

    def note_end(self, outcome: TrialOutcome, device: str | None, metrics: StudyMetrics) -> None:
        """Note constraints, device and cause of a trial's end.

        It costs a line of the journal, two for a trial that failed, and one for each constraint.
        """
        self._set_constraints(_excesses(outcome, metrics))
        if device is not None:
            self.storage.set_trial_user_attr(self.trial_id, DEVICE, device)
        if isinstance(outcome, FailedOutcome | TooLargeOutcome):
            cause = fit_line(outcome.cause, MAX_CAUSE_CHARACTERS)
            self.storage.set_trial_user_attr(self.trial_id, CAUSE, cause)

    def _set_constraints(self, excesses: Mapping[str, float]) -> None:
        """Write constraints that the trial violates where they are above 0, once each."""
        if not excesses:
            return
        known = self.storage.get_trial(self.trial_id).constraints
        sampler = RandomSampler()
        study = optuna.load_study(study_name=self.study_name, storage=self.storage, sampler=sampler)
        for name in excesses.keys() - known.keys():
            optuna.trial.Trial(study, self.trial_id).set_constraint(name, excesses[name])


def _excesses(outcome: TrialOutcome, metrics: StudyMetrics) -> dict[str, float]:
    """Return by how much a trial is too large, or beyond each limit (negative: within)."""
    if isinstance(outcome, TooLargeOutcome):
        return {AT_LEAST_KEY if outcome.at_least else EXCESS_KEY: outcome.excess}
    values = outcome_values(outcome)
    limits = [limit for limit in metrics.limits if limit.name in values]
    found = {limit.name: values[limit.name] / limit.largest - 1 for limit in limits}
    if isinstance(outcome, PrunedOutcome) and len(metrics.metrics) > 1:
        found[PRUNED_KEY] = 1 / (1 + outcome.step)
    return found
