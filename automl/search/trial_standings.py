"""The standings of a study's trials: states, counts, ranks, and which trials stop at which rung.

They are kept in memory beside the storage, so that no report passes over all trials: a report or an
outcome costs O(log n). There are only values here and no storage; `study.py` has the lock.
"""

from __future__ import annotations

import math
import threading
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from automl.record.trial_record import RANKED_STATES, is_value_returned, may_be_best, rank_trial
from automl.search.pruners.pruner import Pruner
from automl.search.pruners.report_thinning import ReportPoint, ReportThinning
from automl.trial import (
    ROWS_PARAM,
    Direction,
    MetricPoint,
    Params,
    ParamValue,
    StudyMetrics,
    TrialState,
    Verdict,
    count_better,
    find_front,
    find_knee,
)
from automl.trial.step_runs import StepRuns


@dataclass(frozen=True)
class RankedTrial:
    """A trial that has ended with a value."""

    number: int
    value: float
    params: Params
    state: TrialState
    point: MetricPoint | None = None
    """What the trial is worth by several metrics; None: the study has one, or some are unknown."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The values by metric, in a study of several."""


def _is_beyond(trial: RankedTrial) -> bool:
    return trial.point is not None and trial.point.excess > 0


_NO_POINTS: Mapping[int, MetricPoint] = MappingProxyType({})


@dataclass
class _ReportCurve:
    """The reports of a trial that has not ended."""

    steps: StepRuns = field(default_factory=StepRuns)
    last_step: int = -1
    best_key: float = math.inf
    best_finite_key: float = math.inf
    """The trial's value if its objective returns nothing; infinite: there is none yet."""
    unjudged: list[tuple[int, float]] = field(default_factory=list)
    """Rungs that the trial has reached without a verdict yet, with its key at each."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of each metric, in a study of several."""
    best_point: MetricPoint | None = None
    """What the trial was worth when the leading metric was best, in a study of several."""
    reached: dict[int, MetricPoint] = field(default_factory=dict)
    """The point at each rung that the trial has reached, in a study of several metrics."""
    last_rung: tuple[int, float] = (-1, math.inf)
    """The last rung that the trial has reached, with its key there."""
    pruned: bool = False
    """The trial was told to stop; the verdict is repeated until it ends or is promoted."""
    is_paused: bool = False
    thinning: ReportThinning = field(default_factory=ReportThinning)


class StudyStandings:
    """The standings of all trials of a study; trial numbers are consecutive from 0."""

    def __init__(
        self,
        metrics: StudyMetrics,
        pruner: Pruner,
        choice: str | None = None,
        pruners: Mapping[ParamValue, Pruner] | None = None,
    ) -> None:
        """Begin without trials.

        `choice` is the param that tells the kind of a trial. Rungs compare trials of one kind, and
        are placed by the kind's own pruner in `pruners`, if there is one.
        """
        self._metrics = metrics
        self._sign = 1.0 if metrics.leading.direction is Direction.minimize else -1.0
        self._pruner, self._choice, self._pruners = pruner, choice, pruners or {}
        self._params: list[Params] = []
        self._curves: dict[int, _ReportCurve] = {}
        self._rungs: dict[Hashable, list[float]] = {}
        self._points_at: dict[Hashable, list[MetricPoint]] = {}
        """The points of all trials at a rung, in a study of several metrics."""
        self._paused: dict[tuple[int, ParamValue], list[tuple[float, int]]] = {}
        """(key, number) of the trials that are paused at each rung of each kind, the best first."""
        self._counts = dict.fromkeys(TrialState, 0)
        self._ranks: dict[TrialState, list[tuple[float, int]]] = {
            state: [] for state in RANKED_STATES
        }
        """(key, number) of each trial with a value, the best first."""
        self._points: dict[int, MetricPoint] = {}
        """The point of each trial with a rank, where the study has several metrics."""
        self._values: dict[int, Mapping[str, float]] = {}
        """The values of these trials by metric."""
        self._front: list[int] = []
        """The finished trials that no other dominates."""
        self._returned = False
        """The objective returns values: finished trials have values that they did not report."""

    @property
    def n_trials(self) -> int:
        return len(self._params)

    def counts(self) -> Mapping[TrialState, int]:
        """Return the number of trials in each state; RUNNING counts all that have neither ended nor
        paused."""
        return dict(self._counts)

    def params(self, number: int) -> Params:
        return self._params[number]

    def judge_by(self, pruner: Pruner, pruners: Mapping[ParamValue, Pruner]) -> None:
        """Judge further reports by other pruners; rungs that trials have passed are kept."""
        self._pruner, self._pruners = pruner, pruners

    def set_params(self, number: int, params: Params) -> None:
        self._params[number] = params

    def is_running(self, number: int) -> bool:
        return number in self._curves

    @property
    def running(self) -> Iterable[int]:
        return self._curves.keys()

    def ranking(self, n: int) -> tuple[RankedTrial, ...]:
        """Return the best `n` trials by value, in the order of `trial_record.rank_trial`.

        Of several metrics, the trials of the front come before all others, the best one first.
        """
        if not self._metrics.are_several:
            return self._by_value(n)
        first, front = self.best(), self.front()
        others = sorted(self._by_value(n + len(front)), key=_is_beyond)
        everyone = (*filter(None, [first]), *front, *others)
        return tuple({trial.number: trial for trial in everyone}.values())[:n]

    def front(self) -> tuple[RankedTrial, ...]:
        """Return the trials that no other trial beats; with one metric, only the best one."""
        if self._metrics.are_several:
            keys = {number: self._points[number].keys[0] for number in self._front}
            return tuple(self._ranked(n, key, TrialState.FINISHED) for n, key in keys.items())
        first = self._by_value(1)
        return tuple(t for t in first if may_be_best(t.state, returned=self._returned))

    def best(self) -> RankedTrial | None:
        """Return the trial at the knee of the front; None: there is none that can be compared."""
        front = self.front()
        if len(front) < 2:
            return next(iter(front), None)
        return front[find_knee([trial.point for trial in front if trial.point is not None])]

    def leader(self) -> tuple[int, float] | None:
        """Return number and value of the best trial so far, or None.

        Reports of running and paused trials count, and pruned trials, once a trial has finished and
        shown that values are best reports.
        """
        by_report = self._counts[TrialState.FINISHED] > 0 and not self._returned
        states = RANKED_STATES if by_report else (TrialState.FINISHED,)
        first = [self._ranks[state][0] for state in states if self._ranks[state]]
        if by_report:
            first += [(c.best_finite_key, n) for n, c in self._curves.items()]
        key, number = min(first, default=(math.inf, -1))
        return (number, key * self._sign) if math.isfinite(key) else None

    def best_report(self, number: int) -> float | None:
        """Return the best value that a trial that has not ended has reported, or None."""
        curve = self._curves.get(number)
        if curve is None or not math.isfinite(curve.best_finite_key):
            return None
        return curve.best_finite_key * self._sign

    def _by_value(self, n: int) -> tuple[RankedTrial, ...]:
        ranked = [
            (rank_trial(key, state, number, returned=self._returned), key, state, number)
            for state, ranks in self._ranks.items()
            for key, number in ranks[:n]
        ]
        return tuple(
            self._ranked(number, key, state)
            for _, key, state, number in sorted(ranked, key=lambda trial: trial[0])[:n]
        )

    def _ranked(self, number: int, key: float, state: TrialState) -> RankedTrial:
        point, values = self._points.get(number), self._values.get(number, {})
        return RankedTrial(number, key * self._sign, self._params[number], state, point, values)

    def comparable_keys(self) -> list[float]:
        """Return the key of each trial that has a value to compare, paused ones included, in the
        order of their numbers; a lower one is better."""
        ended = [
            (number, key)
            for state, ranks in self._ranks.items()
            if may_be_best(state, returned=self._returned)
            for key, number in ranks
        ]
        if not self._returned:
            ended += [(n, c.best_finite_key) for n, c in self._curves.items() if c.is_paused]
        return [key for _, key in sorted(ended) if math.isfinite(key)]

    def start(self, params: Params) -> int:
        """Add a running trial, and return its number."""
        number = len(self._params)
        self._params.append(params)
        self._curves[number] = _ReportCurve()
        self._counts[TrialState.RUNNING] += 1
        return number

    def end(
        self,
        number: int,
        state: TrialState,
        value: float | None,
        values: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """End a running trial. A value that is not finite gets no rank.

        `values` are those by metric, in a study with several.
        """
        if self._curves[number].is_paused:
            self.promote(number)
        curve = self._curves.pop(number)
        self._counts[TrialState.RUNNING] -= 1
        self._counts[state] += 1
        if state in self._ranks and value is not None and math.isfinite(value):
            insort(self._ranks[state], (value * self._sign, number))
            if (point := self._metrics.point(values)) is not None:
                self._values[number] = values
                self._take_point(number, state, point)
        if state is TrialState.FINISHED and value is not None:
            self._returned |= is_value_returned(value * self._sign, curve.best_finite_key)

    def _take_point(self, number: int, state: TrialState, point: MetricPoint) -> None:
        self._points[number] = point
        if state is TrialState.FINISHED:
            numbers = [*self._front, number]
            self._front = [numbers[i] for i in find_front([self._points[n] for n in numbers])]

    def record_metrics(
        self, number: int, step: int, metrics: Mapping[str, float]
    ) -> Sequence[ReportPoint]:
        """Record a report as `record` does, with all its metrics; without the study's metric it
        only tells the newest values of others."""
        if self._metrics.are_several and (curve := self._curves.get(number)) is not None:
            curve.metrics |= metrics
        value = metrics.get(self._metrics.leading.name)
        return () if value is None else self.record(number, step, float(value))

    def record(self, number: int, step: int, value: float) -> Sequence[ReportPoint]:
        """Put a report on the rungs that it reaches, and return the reports for the storage.

        A step that was recorded before changes nothing, nor does a report of an ended trial.
        """
        curve = self._curves.get(number)
        if curve is None or step in curve.steps:
            return ()
        key = math.inf if math.isnan(value) else value * self._sign
        curve.steps.add(step)
        if key < curve.best_key:
            curve.best_point = self._metrics.point(curve.metrics)
        curve.best_key = min(curve.best_key, key)
        if math.isfinite(key):
            curve.best_finite_key = min(curve.best_finite_key, key)
        # A resumed trial repeats steps that the storage did not get: it has passed their rungs.
        pruner = self._pruner_of(number)
        rungs = pruner.rungs(curve.last_step, step) if step > curve.last_step else ()
        for rung in rungs:
            # The best report counts, so that a trial is not stopped for overfitting later.
            if self._metrics.are_several:
                self._reach(number, rung, curve.best_point)
                continue
            insort(self._rungs.setdefault(self._place(number, rung), []), curve.best_key)
            curve.unjudged.append((rung, curve.best_key))
            curve.last_rung = (rung, curve.best_key)
        curve.last_step = max(curve.last_step, step)
        return curve.thinning.take((step, value), key, at_rung=bool(rungs))

    def _reach(self, number: int, rung: int, point: MetricPoint | None) -> None:
        """Put a trial's point on a rung, unless a metric of it is not known yet."""
        if point is not None:
            curve = self._curves[number]
            curve.reached[rung] = curve.best_point = point
            curve.unjudged.append((rung, math.nan))
            self._points_at.setdefault(self._place(number, rung), []).append(point)

    def reached(self, number: int) -> Mapping[int, MetricPoint]:
        """Return the point of a running trial at each rung, in a study of several metrics."""
        curve = self._curves.get(number)
        return {} if curve is None else dict(curve.reached)

    def not_given(self, number: int) -> Sequence[ReportPoint]:
        """Return what the storage lacks of a trial that ends: its best and its last report."""
        return self._curves[number].thinning.rest()

    def judge(self, number: int) -> bool:
        """Return whether the trial stops; each rung judges it once, with the values known then."""
        curve = self._curves.get(number)
        if curve is None:
            return False
        pruner = self._pruner_of(number)
        for rung, key in curve.unjudged:
            place = self._place(number, rung)
            if self._metrics.are_several:
                # A pruner gets keys again: -1 for each better trial, and 0 for the others.
                points = self._points_at[place]
                n = count_better(points, curve.reached[rung])
                pruned = pruner.prunes(0.0, 0.0, [-1.0] * n + [0.0] * (len(points) - n))
            else:
                pruned = pruner.prunes(key, curve.best_key, self._rungs[place])
            curve.pruned |= pruned
        curve.unjudged.clear()
        return curve.pruned

    def verdict(self, number: int) -> Verdict:
        """Judge a trial, and return whether it goes on, is pruned or pauses."""
        if not self.judge(number):
            return Verdict.GO_ON
        return Verdict.PAUSE if self._pruner_of(number).pauses else Verdict.PRUNE

    # --- pauses and promotions ---

    def paused(self) -> Mapping[int, ReportPoint]:
        """Return the last step and the best value of each paused trial, by number; NaN: none."""
        curves = ((n, self._curves[n]) for at in self._paused.values() for _, n in at)
        return {n: (c.last_step, self._value_of(c.best_finite_key)) for n, c in curves}

    def is_paused(self, number: int) -> bool:
        return number in self._curves and self._curves[number].is_paused

    def _value_of(self, key: float) -> float:
        return key * self._sign if math.isfinite(key) else math.nan

    def pause(self, number: int) -> None:
        """Pause a running trial at the last rung that it has reached."""
        curve = self._curves[number]
        rung, key = curve.last_rung
        insort(self._paused.setdefault((rung, self._kind(number)), []), (key, number))
        curve.is_paused = True
        self._move(TrialState.RUNNING, TrialState.PAUSED)

    def promotable(self, *, grows: bool) -> int | None:
        """Return the paused trial that goes on next, from the highest rung that has one; None:
        there is none now.

        `grows`: new trials may still reach the rungs.
        """
        is_last = not grows and not self._counts[TrialState.RUNNING]
        for place in sorted(self._paused, key=lambda place: place[0], reverse=True):
            key, number = self._paused[place][0]
            keys = self._rungs.get(self._place(number, place[0]), [])
            if self._pruner_of(number).promotes(key, keys, is_last=is_last):
                return number
        return None

    def promote(self, number: int) -> None:
        """Let a paused trial run."""
        curve = self._curves[number]
        rung, key = curve.last_rung
        at = self._paused[rung, self._kind(number)]
        at.remove((key, number))
        if not at:
            del self._paused[rung, self._kind(number)]
        curve.pruned = curve.is_paused = False
        curve.unjudged.clear()
        self._move(TrialState.PAUSED, TrialState.RUNNING)

    def _move(self, before: TrialState, after: TrialState) -> None:
        self._counts[before] -= 1
        self._counts[after] += 1

    def _kind(self, number: int) -> ParamValue:
        return None if self._choice is None else self._params[number].get(self._choice)

    def _pruner_of(self, number: int) -> Pruner:
        return self._pruners.get(self._kind(number), self._pruner)

    def _place(self, number: int, rung: int) -> Hashable:
        """Return the key of a rung; a step has another meaning for another kind of trials, or for
        another number of rows."""
        if self._choice is None:
            return rung
        return self._kind(number), self._params[number].get(ROWS_PARAM), rung

    def replay(
        self,
        number: int,
        reports: Iterable[tuple[int, float]],
        reached: Mapping[int, MetricPoint] = _NO_POINTS,
    ) -> None:
        """Record the reports of a trial to an earlier sweep, which judged them.

        The last one is judged again, since a kill may have come before its verdict. `reached` are
        the points at its rungs, in a study of several metrics.
        """
        for rung, point in sorted(reached.items()):
            self._curves[number].unjudged.clear()
            self._reach(number, rung, point)
        curve, points = self._curves[number], sorted(reports)
        for step, value in points:
            if not reached:
                curve.unjudged.clear()
            self.record(number, step, value)
        curve.thinning.replayed(len(points))


class PausedTrials:
    """Pauses and promotes the trials of one study. For any thread."""

    def __init__(self, standings: StudyStandings, lock: threading.Lock) -> None:
        """`lock` guards the standings."""
        self._standings, self._lock = standings, lock

    def comparable_keys(self) -> list[float]:
        """Return the keys of ended and paused trials, as the standings do."""
        with self._lock:
            return self._standings.comparable_keys()

    def pause(self, number: int) -> None:
        """Note that a trial has stopped at a rung and goes on only if it is promoted."""
        with self._lock:
            self._standings.pause(number)

    def all(self) -> Mapping[int, ReportPoint]:
        """Return the last step and the best value of each paused trial, by number; NaN: none."""
        with self._lock:
            return self._standings.paused()

    def has(self, number: int) -> bool:
        return self._standings.is_paused(number)

    def may_promote(self, *, grows: bool) -> bool:
        """Return whether a paused trial goes on now. `grows`: new trials may still come."""
        with self._lock:
            return self._standings.promotable(grows=grows) is not None

    def promote(self, *, grows: bool) -> int | None:
        """Let the next paused trial run that goes on now; None: there is none."""
        with self._lock:
            number = self._standings.promotable(grows=grows)
            if number is not None:
                self._standings.promote(number)
            return number
