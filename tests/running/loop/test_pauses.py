"""Trials that pause at rungs and are promoted, simulated: the study's own standings decide, and
pauses, promotions, ends and readings come in any order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import PlannedTrial
from automl.search.pruners.asha import PromotingHalving
from automl.search.trial_standings import PausedTrials, StudyStandings
from automl.trial import (
    Direction,
    FinishedOutcome,
    PausedOutcome,
    StudyMetric,
    StudyMetrics,
    TrialOutcome,
    TrialState,
    Verdict,
)
from tests.running.loop.simulated_machine import GB, A, Fault, Hosted, Lane, Plan
from tests.running.loop.simulator import World

TWO = {"GPU-a": 24 * GB, "GPU-b": 24 * GB}
N_STEPS = 4


@dataclass
class PausingWorld(World):
    """A machine whose trials report `N_STEPS` times, and pause at the rungs of `pruner=asha`."""

    values: Sequence[float] = ()
    """What each trial reports, at each step."""
    stops_after: float = 0.0
    """How long a trial that is told to pause goes on; it may report, or end, meanwhile."""
    n_promoted: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        pruner = PromotingHalving(factor=2, min_steps=1)
        metrics = StudyMetrics((StudyMetric("val_loss", Direction.minimize),))
        self.standings = StudyStandings(metrics, pruner)
        self.pauses = PausedTrials(self.standings, threading.Lock())
        self.steps: dict[int, list[int]] = {}
        """The steps that each trial has reported."""

    def ask(self) -> PlannedTrial | None:
        planned = super().ask()
        assert planned is not None
        self.standings.start(planned.params)
        return planned

    def may_promote(self, *, grows: bool) -> bool:
        return self.pauses.may_promote(grows=grows)

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        number = self.pauses.promote(grows=grows)
        if number is None:
            return None
        self.n_promoted += 1
        return PlannedTrial(number, self.standings.params(number))

    def tell(self, outcome: TrialOutcome) -> None:
        if isinstance(outcome, PausedOutcome):
            self.pauses.pause(outcome.trial)
            return
        super().tell(outcome)
        self.standings.end(outcome.trial, outcome.state, self.values[outcome.trial])

    def _begin_lane(self, execution: Hosted, lane: Lane) -> None:
        """It goes on after the last step that it has reported."""
        first = len(self.steps.setdefault(lane.number, []))
        seconds = lane.plan.seconds_on(execution.placement.kind) / (N_STEPS + 1)
        for n, step in enumerate(range(first, N_STEPS), 1):
            self._at(n * seconds, partial(self._report_step, execution, lane, step))

    def _report_step(self, execution: Hosted, lane: Lane, step: int) -> None:
        if lane not in execution.lanes.values():
            return
        self._report(execution, lane)
        self.steps[lane.number].append(step)
        self.standings.record(lane.number, step, self.values[lane.number])
        if self.standings.verdict(lane.number) is Verdict.PAUSE:
            self._at(self.stops_after, partial(self._pause_lane, execution, lane))

    def _pause_lane(self, execution: Hosted, lane: Lane) -> None:
        if lane in execution.lanes.values():
            last = self.steps[lane.number][-1]
            self._tell_end(execution, PausedOutcome(lane.number, self.now, last))

    def _waiting(self) -> set[int]:
        return super()._waiting() | self.pauses.all().keys()

    def check_end(self) -> None:
        """No trial is lost, none trained a step twice, and none that was to go on is left."""
        assert not self.pauses.may_promote(grows=False), "a promotion was forgotten"
        paused = self.pauses.all().keys()
        assert sorted([*self.told, *paused]) == [*range(len(self.plans))], "a trial got lost"
        for number, outcome in self.told.items():
            assert isinstance(outcome, FinishedOutcome)
            assert self.steps[number] == [*range(N_STEPS)], "a step is missing, or came twice"
        assert self.told, "none of several trials finished"
        assert self.standings.counts()[TrialState.PAUSED] == len(paused)


@settings(max_examples=60, deadline=None)
@given(
    trials=st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 5)), min_size=1, max_size=12),
    stops_after=st.sampled_from([0.0, 0.05, 0.5]),
    released_after=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    told_after=st.sampled_from([0.0, 0.05, 0.3, 2.0]),
    reading_seconds=st.sampled_from([0.3, 0.7]),
    kinds=st.sampled_from([(None,), (A,), (None, A)]),
    at_once=st.sampled_from([1, 2, None]),
    own_processes=st.booleans(),
)
@example(
    trials=[(1.0, 1), (1.0, 0), (1.0, 0)],
    stops_after=0.0,
    released_after=1.0,
    told_after=0.0,
    reading_seconds=0.3,
    kinds=(None,),
    at_once=None,
    own_processes=True,
)
def test_a_promotion_finds_its_trial_in_whatever_order_things_come(
    trials: list[tuple[float, int]], kinds: Sequence[Any], at_once: int | None, **how: Any
) -> None:
    planned = [
        Plan(GB, GB, seconds=seconds, kind=kinds[n % len(kinds)], reports_after=seconds)
        for n, (seconds, _) in enumerate(trials)
    ]
    values = [float(value) for _, value in trials]
    limits = AdmissionLimits(at_once, 0, 5.0, max_per_gpu=3)
    world = PausingWorld(TWO, planned, values=values, limits=limits, **how)
    world.go_to_end()
    world.check_end()


def test_trials_of_a_device_that_fails_are_promoted_and_pause_all_the_same() -> None:
    planned = [Plan(GB, GB, seconds=2.0, kind=(A, None)[n % 2]) for n in range(12)]
    faults = [Fault("GPU-a", 1.2, 3.0)]
    values = [float(n % 5) for n in range(12)]
    world = PausingWorld(TWO, planned, values=values, faults=faults, own_processes=True)
    world.go_to_end()
    world.check_end()
    assert world.n_promoted > 0
