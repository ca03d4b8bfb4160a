"""Derives from a study's data what its report says: progress, edges, rungs, costs. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from automl.record.texts import mask_varying
from automl.record.trial_record import TrialRecord
from automl.report_page.study_data import ParamScale, StudyData, TrialExecution
from automl.search.gain_forecast import expected_gain
from automl.search.param_importances import (
    NumberScale,
    ParamImportance,
    Scale,
    param_importances,
)
from automl.trial import Direction, ParamValue, PrunedOutcome, TrialState

ConcurrentExecutions: TypeAlias = tuple[float, float, tuple[TrialExecution, ...]]
"""The begin and the end (Unix seconds) of a time in which the same executions ran, and these."""
EDGE = 0.04
"""A best value within this part of its range lies at the edge."""


def comparable_trials(data: StudyData) -> Sequence[TrialRecord]:
    """Return the trials whose values compare, in the order of their ends: those that finished, and
    the best one if it was pruned. Without a finished trial all that have a value."""
    if all(trial.state is not TrialState.FINISHED for trial in data.valued):
        return data.valued
    best = data.record.best()
    return [t for t in data.valued if t.state is TrialState.FINISHED or t is best]


def best_so_far(trials: Sequence[TrialRecord], direction: Direction) -> list[TrialRecord]:
    """Return the trials that were the best when they ended, in that order."""
    best: list[TrialRecord] = []
    for trial in trials:
        assert trial.value is not None
        if not best or direction.better(trial.value, best[-1].value or 0.0):
            best.append(trial)
    return best


@dataclass(frozen=True)
class SearchGain:
    """What the search has gained since its first trial, and what more trials would."""

    first: float
    best: float
    n_since: int
    """Number of trials that ended after the best one."""
    forecast: float | None
    """The gain that is expected of as many trials again; None: too few trials to say."""


def search_gain(trials: Sequence[TrialRecord], direction: Direction) -> SearchGain | None:
    """Return the gain of the trials, in the order of their ends; None for none."""
    if not trials:
        return None
    best = best_so_far(trials, direction)[-1]
    sign = 1.0 if direction is Direction.minimize else -1.0
    keys = [sign * (trial.value or 0.0) for trial in trials]
    n_since = len(trials) - 1 - trials.index(best)
    return SearchGain(trials[0].value or 0.0, best.value or 0.0, n_since, expected_gain(keys))


@dataclass(frozen=True)
class RangeEdge:
    """A range at whose edge the best value lies."""

    name: str
    is_high: bool
    bound: float
    override: str | None
    """The setting that widens the range: `space.lr.high=1`; None: the objective has the range."""

    @property
    def remedy(self) -> str:
        """What would look beyond the range, for a sentence."""
        return self.override or "a wider range in the objective"


def range_edges(data: StudyData, best: TrialRecord) -> list[RangeEdge]:
    """Return the declared ranges at whose edge the best trial lies, if there may be more beyond."""
    edges = []
    settings = data.record.settings
    asks_itself = settings.get("objective.suggests", "").lower() == "true"
    is_objectives = asks_itself or settings.get("objective.kind") == "optuna"
    for scale in data.scales.values():
        value = best.params.get(scale.name)
        if not scale.is_declared or isinstance(value, bool | str) or value is None:
            continue
        share = scale.share(value)
        if EDGE < share < 1 - EDGE:
            continue
        is_high = share > 0.5
        bound = scale.high if is_high else scale.low
        if _is_last(scale, is_high=is_high):
            continue
        override = None if is_objectives else _override(scale, value, is_high=is_high)
        edges.append(RangeEdge(scale.name, is_high, bound, override))
    return edges


def _is_last(scale: ParamScale, *, is_high: bool) -> bool:
    """Return whether a range seems to end where its values do: at 0, or at 1 for a share."""
    return scale.high == 1 and scale.low >= 0 if is_high else scale.low == 0


def _override(scale: ParamScale, value: ParamValue, *, is_high: bool) -> str:
    width = scale.high - scale.low
    if scale.is_log:
        wider = scale.high * 10 if is_high else scale.low / 10
    else:
        wider = scale.high + width / 2 if is_high else scale.low - width / 2
        if scale.low >= 0:
            is_share = scale.high < 1 and isinstance(value, float)
            wider = min(max(wider, 0.0), 1.0 if is_share else math.inf)
    if isinstance(value, int):
        wider = max(1, round(wider)) if scale.low > 0 else round(wider)
    return f"space.{scale.name}.{'high' if is_high else 'low'}={wider:.6g}"


@dataclass(frozen=True)
class RungAgreement:
    """How well the order of trials at a rung predicts their order at the end."""

    step: int
    n_stopped: int
    """Number of trials that were pruned at the rung."""
    n_compared: int
    """Number of finished trials with a report at the rung."""
    correlation: float | None
    """Spearman's rank correlation of the values there and at the end; None: too few trials."""


def rung_agreements(data: StudyData) -> list[RungAgreement]:
    """Return the agreement at each rung where trials stopped, in the order of steps."""
    stopped = Counter(
        trial.outcome.step for trial in data.ended if isinstance(trial.outcome, PrunedOutcome)
    )
    metric = data.record.metric
    finished = [t for t in data.valued if t.state is TrialState.FINISHED]
    found = []
    for step, n_stopped in sorted(stopped.items()):
        there = [best_until(t, metric.name, step, metric.direction) for t in finished]
        pairs = [
            (at, t.value)
            for at, t in zip(there, finished, strict=True)
            if at is not None and t.value is not None
        ]
        found.append(RungAgreement(step, n_stopped, len(pairs), _rank_correlation(pairs)))
    return found


def best_until(trial: TrialRecord, metric: str, step: int, direction: Direction) -> float | None:
    """Return the best finite value that a trial had reported up to a step."""
    reports = trial.reports or {}
    values = [m[metric] for at, m in reports.items() if at <= step and metric in m]
    finite = [value for value in values if math.isfinite(value)]
    if not finite or max(reports, default=-1) < step:
        return None
    return min(finite) if direction is Direction.minimize else max(finite)


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than four pairs, or without a spread."""
    if len(pairs) < 4:
        return None
    first, second = (_ranks(column) for column in zip(*pairs, strict=True))
    try:
        return statistics.correlation(first, second)  # scipy.stats takes half a second to load
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values share their mean rank."""
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def importances(data: StudyData) -> list[ParamImportance]:
    """Return how much each param matters, the most important first; empty for few trials."""
    scales: dict[str, Scale] = {}
    for name, scale in data.scales.items():
        scales[name] = (
            NumberScale(scale.low, scale.high, scale.is_log)
            if scale.is_number
            else scale.categories
        )
    trials = [(trial.params, trial.value) for trial in data.valued if trial.value is not None]
    return param_importances(trials, scales)


# --- where the time went ----------------------------------------------------------------------


def device_seconds(executions: Sequence[TrialExecution]) -> Mapping[str, float]:
    """Return the seconds of devices by the state in which the executions there ended.

    Executions that share a device at a time share that time equally.
    """
    found: dict[str, float] = defaultdict(float)
    for own in group_by_device(executions).values():
        for start, end, running in concurrency(own):
            for execution in running:
                found[execution.state] += (end - start) / len(running)
    return dict(found)


def group_by_device(
    executions: Sequence[TrialExecution],
) -> Mapping[str, Sequence[TrialExecution]]:
    """Return the executions of each device, in their order."""
    by_device: dict[str, list[TrialExecution]] = defaultdict(list)
    for execution in executions:
        by_device[execution.device].append(execution)
    return by_device


def concurrency(executions: Sequence[TrialExecution]) -> list[ConcurrentExecutions]:
    """Return the intervals in which the same executions ran, without those in which none ran."""
    changes = sorted(
        [(e.start_seconds, 1, i) for i, e in enumerate(executions)]
        + [(e.end_seconds, 0, i) for i, e in enumerate(executions)]
    )
    intervals, running, since = [], dict[int, TrialExecution](), 0.0
    for time, is_start, i in changes:
        if running and time > since:
            intervals.append((since, time, tuple(running.values())))
        since = time
        if is_start and executions[i].end_seconds > executions[i].start_seconds:
            running[i] = executions[i]
        else:
            running.pop(i, None)
    return intervals


def failure_causes(data: StudyData) -> list[tuple[int, str, int]]:
    """Return the causes of failures: how many trials, the cause, and the first such trial.

    Causes that differ by numbers and the like are one, in the words of the first trial.
    """
    failed = [t for t in data.record.trials.values() if t.state is TrialState.FAILED and t.cause]
    first: dict[str, TrialRecord] = {}
    counts = Counter[str]()
    for trial in failed:
        kind = mask_varying(trial.cause or "")
        counts[kind] += 1
        first.setdefault(kind, trial)
    return [(n, first[kind].cause or "", first[kind].number) for kind, n in counts.most_common()]
