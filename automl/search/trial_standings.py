"""How the trials of a study stand: states, counts, ranks, and who stops at which rung.

Kept in memory beside the storage, so that nothing passes over all trials for one of them: a report
or an outcome costs O(log n). Values only; no storage and no lock (`study.py` holds one).

Which of a trial's reports Optuna's storage is given: all of the first 1,000, then ever fewer.

The journal storage copies all values of a trial for each one added, so that 100,000 reports in one
trial went from 5,288 a second to 55. The event log has every report; the storage gets 500 more each
time that their number doubles (4,500 of 128,000), and besides what must not be missed:

- those at a rung, the best before it and the one after it: from these a study that is resumed knows
  what each trial had reached at each rung, and which rungs it has passed;
- at the trial's end the best and the last: TPE learns from a pruned trial's last value.

Of more than 1,000 rungs in one trial (the median pruner can have one at each step) the rest is
thinned like other reports.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from automl.record.trial_record import RANKED, is_returned, may_win, rank
from automl.search.pruners.pruner import Pruner
from automl.trial import Direction, Params, ParamValue, TrialState

ReportPoint: TypeAlias = tuple[int, float]
"""A step and its value."""
N_WHOLE = 1000
"""So many reports are given without a gap."""
_N_PER_DOUBLING = N_WHOLE // 2
_MAX_RUNGS = 1000


@dataclass
class ReportThinning:
    """Of one trial. Holds no more than two of its reports."""

    n_given: int = 0
    _n_since: int = 0
    """Reports since the last that was given."""
    _n_rungs: int = 0
    _follows_rung: bool = False
    _best_key: float | None = None
    _left_out: dict[str, ReportPoint] = field(default_factory=dict)
    """The best so far and the last report, where they were not given."""

    def take(self, point: ReportPoint, key: float, *, at_rung: bool) -> list[ReportPoint]:
        """What the storage is given now; of keys the lower is the better."""
        is_best = self._best_key is None or key < self._best_key
        at_rung = at_rung and self._n_rungs < _MAX_RUNGS
        self._n_since += 1
        self._left_out["last"] = point
        if is_best:
            self._best_key = key
            self._left_out["best"] = point
        if at_rung:
            self._n_rungs += 1
            given = self.rest()
        elif self._follows_rung or self._n_since >= self._stride:
            given = [self._left_out.pop("last")]
            if is_best:
                del self._left_out["best"]
        else:
            return []
        self._follows_rung = at_rung
        self._n_since = 0
        self.n_given += len(given)
        return given

    def rest(self) -> list[ReportPoint]:
        """The best and the last report, where the storage lacks them; by step."""
        points = sorted(set(self._left_out.values()))
        self._left_out.clear()
        return points

    def replayed(self, n_given: int) -> None:
        """All that was taken so far, `n_given` reports, came from the storage."""
        self._left_out.clear()
        self.n_given, self._n_since = n_given, 0

    @property
    def _stride(self) -> int:
        """1, and from the 1,000th on 2, from the 1,500th on 4, from the 2,000th on 8 …"""
        n_doublings = max(0, self.n_given - N_WHOLE + _N_PER_DOUBLING) // _N_PER_DOUBLING
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

    steps: set[int] = field(default_factory=set)
    last_step: int = -1
    best_key: float = math.inf
    best_finite_key: float = math.inf
    """What a trial is worth whose objective returns nothing; infinite: nothing yet."""
    unjudged: list[tuple[int, float]] = field(default_factory=list)
    """Rungs reached and the trial's keys there."""
    pruned: bool = False
    """The verdict fell; it is repeated until the trial ends."""
    thinning: ReportThinning = field(default_factory=ReportThinning)


class StudyStandings:
    """All trials of a study. Numbers are consecutive from 0."""

    def __init__(
        self,
        direction: Direction,
        pruner: Pruner,
        choice: str | None = None,
        pruners: Mapping[ParamValue, Pruner] | None = None,
    ) -> None:
        """`choice` is the param that says what kind a trial is of: rungs compare one kind alone,
        and stand where the kind's own of `pruners` has them, if there is one."""
        self._sign = 1.0 if direction is Direction.minimize else -1.0
        self._pruner, self._choice, self._pruners = pruner, choice, pruners or {}
        self._params: list[Params] = []
        self._courses: dict[int, _ReportCurve] = {}
        self._rungs: dict[Hashable, list[float]] = {}
        self._counts = dict.fromkeys(TrialState, 0)
        self._ranks: dict[TrialState, list[tuple[float, int]]] = {state: [] for state in RANKED}
        """(key, number) of those with a value, the best first."""
        self._returned = False
        """Finished trials have values that they did not report: the objective returned them."""

    @property
    def n_trials(self) -> int:
        return len(self._params)

    def counts(self) -> Mapping[TrialState, int]:
        """Trials by state, all states named; RUNNING are those that have not ended."""
        return dict(self._counts)

    def params(self, number: int) -> Params:
        return self._params[number]

    def set_params(self, number: int, params: Params) -> None:
        """A running trial has others now."""
        self._params[number] = params

    def is_running(self, number: int) -> bool:
        return number in self._courses

    @property
    def running(self) -> Iterable[int]:
        return self._courses.keys()

    def ranking(self, n: int) -> tuple[RankedTrial, ...]:
        """The best `n` trials by value, in the order of `judging.rank`."""
        ranked = [
            (rank(key, state, number, returned=self._returned), key, state, number)
            for state, ranks in self._ranks.items()
            for key, number in ranks[:n]
        ]
        return tuple(
            RankedTrial(number, key * self._sign, self._params[number], state)
            for _, key, state, number in sorted(ranked, key=lambda trial: trial[0])[:n]
        )

    def best(self) -> RankedTrial | None:
        """The trial that ended with the best value, pruned or not; see `ranking`."""
        for first in self.ranking(1):
            return first if may_win(first.state, returned=self._returned) else None
        return None

    def start(self, params: Params) -> int:
        """Add a running trial; returns its number."""
        number = len(self._params)
        self._params.append(params)
        self._courses[number] = _ReportCurve()
        self._counts[TrialState.RUNNING] += 1
        return number

    def end(self, number: int, state: TrialState, value: float | None) -> None:
        """A running trial ends. A value that is not finite gets no rank."""
        course = self._courses.pop(number)
        self._counts[TrialState.RUNNING] -= 1
        self._counts[state] += 1
        if state in self._ranks and value is not None and math.isfinite(value):
            insort(self._ranks[state], (value * self._sign, number))
        if state is TrialState.FINISHED and value is not None:
            self._returned |= is_returned(value * self._sign, course.best_finite_key)

    def record(self, number: int, step: int, value: float) -> Sequence[ReportPoint]:
        """Put a report on the rungs it reaches; returns what the storage is given for it, if any.

        A step that is known is nothing new, nor is a report of a trial that has ended.
        """
        course = self._courses.get(number)
        if course is None or step in course.steps:
            return ()
        key = math.inf if math.isnan(value) else value * self._sign
        course.steps.add(step)
        course.best_key = min(course.best_key, key)
        if math.isfinite(key):
            course.best_finite_key = min(course.best_finite_key, key)
        # A resumed trial repeats steps that the storage was not given: their rungs are behind it.
        pruner = self._pruner_of(number)
        rungs = pruner.rungs(course.last_step, step) if step > course.last_step else ()
        for rung in rungs:
            # A trial is worth its best report, so one that overfits later is not stopped for it.
            insort(self._rungs.setdefault(self._place(number, rung), []), course.best_key)
            course.unjudged.append((rung, course.best_key))
        course.last_step = max(course.last_step, step)
        return course.thinning.take((step, value), key, at_rung=bool(rungs))

    def not_given(self, number: int) -> Sequence[ReportPoint]:
        """What the storage lacks of a trial that ends: its best and its last report."""
        return self._courses[number].thinning.rest()

    def judge(self, number: int) -> bool:
        """Whether the trial stops; each rung judges it once, with the values there are by then."""
        course = self._courses.get(number)
        if course is None:
            return False
        pruner = self._pruner_of(number)
        for rung, key in course.unjudged:
            if pruner.prunes(key, course.best_key, self._rungs[self._place(number, rung)]):
                course.pruned = True
        course.unjudged.clear()
        return course.pruned

    def _kind(self, number: int) -> ParamValue:
        return None if self._choice is None else self._params[number].get(self._choice)

    def _pruner_of(self, number: int) -> Pruner:
        return self._pruners.get(self._kind(number), self._pruner)

    def _place(self, number: int, rung: int) -> Hashable:
        """Where a trial meets others: a step means another thing to another kind of trial."""
        return rung if self._choice is None else (self._kind(number), rung)

    def replay(self, number: int, reports: Iterable[tuple[int, float]]) -> None:
        """Record what a trial reported to an earlier sweep, whose verdicts it has had.

        But for the last one, after which a kill may have come: that rung judges it again.
        """
        course, given = self._courses[number], sorted(reports)
        for step, value in given:
            course.unjudged.clear()
            self.record(number, step, value)
        course.thinning.replayed(len(given))
