"""The standings of a study's trials: states, counts, ranks, and which trials stop at which rung.

They are kept in memory beside the storage, so that no report passes over all trials: a report or an
outcome costs O(log n). There are only values here, no storage and no lock (`study.py` holds one).

`ReportThinning` selects the reports that Optuna's storage gets: the first 1,000 of a trial, then
ever fewer. The journal storage copies all values of a trial for each one added: with 100,000
reports in one trial it went from 5,288 a second to 55. The event log has every report. The storage
gets 500 more each time that their number doubles (4,500 of 128,000), and these in addition:

- the report at a rung, the best before it and the one after it: from these a resumed study knows
  what each trial had reached at each rung, and which rungs it has passed;
- the best and the last report at the trial's end: TPE learns from a pruned trial's last value.

A trial can have more than 1,000 rungs (the median pruner can have one at each step). Reports at
later rungs are thinned like other reports.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from automl.record.trial_record import RANKED_STATES, is_value_returned, may_be_best, rank_trial
from automl.search.pruners.pruner import Pruner
from automl.trial import Direction, Params, ParamValue, TrialState
from automl.trial.step_runs import StepRuns

ReportPoint: TypeAlias = tuple[int, float]
"""A step and its value."""
N_WITHOUT_GAP = 1000
"""The storage gets this many reports of a trial without a gap."""
_N_PER_DOUBLING = N_WITHOUT_GAP // 2
_MAX_RUNGS = 1000


@dataclass
class ReportThinning:
    """Selects the reports of one trial that the storage gets; holds at most two of them."""

    n_given: int = 0
    _n_since: int = 0
    """The number of reports since the last one that the storage got."""
    _n_rungs: int = 0
    _follows_rung: bool = False
    _best_key: float | None = None
    _left_out: dict[str, ReportPoint] = field(default_factory=dict)
    """The best and the last report so far, where the storage did not get them."""

    def take(self, point: ReportPoint, key: float, *, at_rung: bool) -> list[ReportPoint]:
        """Return the reports that the storage gets now; a lower key is better."""
        is_best = self._best_key is None or key < self._best_key
        at_rung = at_rung and self._n_rungs < _MAX_RUNGS
        self._n_since += 1
        self._left_out["last"] = point
        if is_best:
            self._best_key = key
            self._left_out["best"] = point
        if at_rung:
            self._n_rungs += 1
            points = self.rest()
        elif self._follows_rung or self._n_since >= self._stride:
            points = [self._left_out.pop("last")]
            if is_best:
                del self._left_out["best"]
        else:
            return []
        self._follows_rung = at_rung
        self._n_since = 0
        self.n_given += len(points)
        return points

    def rest(self) -> list[ReportPoint]:
        """Return the best and the last report, if the storage lacks them, in order of steps."""
        points = sorted(set(self._left_out.values()))
        self._left_out.clear()
        return points

    def replayed(self, n_given: int) -> None:
        """Note that all reports taken so far, `n_given` in number, came from the storage."""
        self._left_out.clear()
        self.n_given, self._n_since = n_given, 0

    @property
    def _stride(self) -> int:
        """The storage gets every n-th report: 1; 2 from the 1,000th on; 4 from the 1,500th on; …"""
        n_doublings = max(0, self.n_given - N_WITHOUT_GAP + _N_PER_DOUBLING) // _N_PER_DOUBLING
        return 1 << n_doublings


@dataclass(frozen=True)
class RankedTrial:
    """A trial that has ended with a value."""

    number: int
    value: float
    params: Params
    state: TrialState


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
    pruned: bool = False
    """The trial was told to stop; the verdict is repeated until it ends."""
    thinning: ReportThinning = field(default_factory=ReportThinning)


class StudyStandings:
    """The standings of all trials of a study; trial numbers are consecutive from 0."""

    def __init__(
        self,
        direction: Direction,
        pruner: Pruner,
        choice: str | None = None,
        pruners: Mapping[ParamValue, Pruner] | None = None,
    ) -> None:
        """Begin without trials.

        `choice` is the param that tells the kind of a trial. Rungs compare trials of one kind, and
        are placed by the kind's own pruner in `pruners`, if there is one.
        """
        self._sign = 1.0 if direction is Direction.minimize else -1.0
        self._pruner, self._choice, self._pruners = pruner, choice, pruners or {}
        self._params: list[Params] = []
        self._curves: dict[int, _ReportCurve] = {}
        self._rungs: dict[Hashable, list[float]] = {}
        self._counts = dict.fromkeys(TrialState, 0)
        self._ranks: dict[TrialState, list[tuple[float, int]]] = {
            state: [] for state in RANKED_STATES
        }
        """(key, number) of each trial with a value, the best first."""
        self._returned = False
        """The objective returns values: finished trials have values that they did not report."""

    @property
    def n_trials(self) -> int:
        return len(self._params)

    def counts(self) -> Mapping[TrialState, int]:
        """Return the number of trials in each state; RUNNING counts all that have not ended."""
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
        """Return the best `n` trials by value, in the order of `trial_record.rank_trial`."""
        ranked = [
            (rank_trial(key, state, number, returned=self._returned), key, state, number)
            for state, ranks in self._ranks.items()
            for key, number in ranks[:n]
        ]
        return tuple(
            RankedTrial(number, key * self._sign, self._params[number], state)
            for _, key, state, number in sorted(ranked, key=lambda trial: trial[0])[:n]
        )

    def best(self) -> RankedTrial | None:
        """Return the first trial of the ranking; None: there is none, or it cannot be compared."""
        for first in self.ranking(1):
            return first if may_be_best(first.state, returned=self._returned) else None
        return None

    def start(self, params: Params) -> int:
        """Add a running trial, and return its number."""
        number = len(self._params)
        self._params.append(params)
        self._curves[number] = _ReportCurve()
        self._counts[TrialState.RUNNING] += 1
        return number

    def end(self, number: int, state: TrialState, value: float | None) -> None:
        """End a running trial. A value that is not finite gets no rank."""
        curve = self._curves.pop(number)
        self._counts[TrialState.RUNNING] -= 1
        self._counts[state] += 1
        if state in self._ranks and value is not None and math.isfinite(value):
            insort(self._ranks[state], (value * self._sign, number))
        if state is TrialState.FINISHED and value is not None:
            self._returned |= is_value_returned(value * self._sign, curve.best_finite_key)

    def record(self, number: int, step: int, value: float) -> Sequence[ReportPoint]:
        """Put a report on the rungs that it reaches, and return the reports for the storage.

        A step that was recorded before changes nothing, nor does a report of an ended trial.
        """
        curve = self._curves.get(number)
        if curve is None or step in curve.steps:
            return ()
        key = math.inf if math.isnan(value) else value * self._sign
        curve.steps.add(step)
        curve.best_key = min(curve.best_key, key)
        if math.isfinite(key):
            curve.best_finite_key = min(curve.best_finite_key, key)
        # A resumed trial repeats steps that the storage did not get: it has passed their rungs.
        pruner = self._pruner_of(number)
        rungs = pruner.rungs(curve.last_step, step) if step > curve.last_step else ()
        for rung in rungs:
            # The best report counts, so that a trial is not stopped for overfitting later.
            insort(self._rungs.setdefault(self._place(number, rung), []), curve.best_key)
            curve.unjudged.append((rung, curve.best_key))
        curve.last_step = max(curve.last_step, step)
        return curve.thinning.take((step, value), key, at_rung=bool(rungs))

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
            if pruner.prunes(key, curve.best_key, self._rungs[self._place(number, rung)]):
                curve.pruned = True
        curve.unjudged.clear()
        return curve.pruned

    def _kind(self, number: int) -> ParamValue:
        return None if self._choice is None else self._params[number].get(self._choice)

    def _pruner_of(self, number: int) -> Pruner:
        return self._pruners.get(self._kind(number), self._pruner)

    def _place(self, number: int, rung: int) -> Hashable:
        """Return the key of a rung; a step has another meaning for another kind of trials."""
        return rung if self._choice is None else (self._kind(number), rung)

    def replay(self, number: int, reports: Iterable[tuple[int, float]]) -> None:
        """Record the reports of a trial to an earlier sweep, which judged them.

        The last one is judged again, since a kill may have come before its verdict.
        """
        curve, points = self._curves[number], sorted(reports)
        for step, value in points:
            curve.unjudged.clear()
            self.record(number, step, value)
        curve.thinning.replayed(len(points))
