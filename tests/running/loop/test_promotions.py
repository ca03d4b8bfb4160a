"""What the loop does with trials that pause at a rung and are promoted later."""

from __future__ import annotations

from dataclasses import replace

from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    ExecutionStart,
    PeerSweepsObserved,
    PlannedTrial,
    TimePassed,
    TrialEnded,
    WaitingTrial,
)
from automl.trial import FinishedOutcome, PausedOutcome, TrialOutcome
from tests.running.loop.test_others import Ports, make_loop, over, read


class PromotingPorts(Ports):
    """Promotes the trials that it is told to."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(*numbers)
        self.promotable: list[int] = []
        self.begun: list[WaitingTrial] = []

    def may_promote(self, *, grows: bool) -> bool:
        return bool(self.promotable)

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        return PlannedTrial(self.promotable.pop(0), {}) if self.promotable else None

    def submit(self, start: ExecutionStart) -> None:
        super().submit(start)
        self.begun += start.group


def end(loop: SweepLoop, outcome: TrialOutcome) -> None:
    """End the trial that runs alone, and give its place back."""
    loop.handle(TrialEnded(outcome), 1.0)
    over(loop, outcome.trial)
    loop.handle(read(1.0), 1.0)


def test_a_promoted_trial_comes_before_a_new_one_and_is_what_it_was() -> None:
    ports = PromotingPorts(0, 1, 2)
    loop = make_loop(ports, 3, PeerSweepsObserved())
    loop.running[0].members[0] = replace(loop.running[0].members[0], deaths=1, may_pack=False)
    end(loop, PausedOutcome(0, 1.0, 0))
    assert ports.started == [0, 1], "its place is free"
    ports.promotable = [0]
    end(loop, PausedOutcome(1, 1.0, 0))
    assert ports.started == [0, 1, 0]
    assert (ports.begun[-1].deaths, ports.begun[-1].may_pack) == (1, False)
    end(loop, FinishedOutcome(0, 2.0, 0.5))
    assert ports.started == [0, 1, 0, 2]


def test_the_sweep_is_done_when_none_runs_comes_or_is_promoted() -> None:
    ports = PromotingPorts(0)
    loop = make_loop(ports, 1, PeerSweepsObserved())
    ports.promotable = [0]
    end(loop, PausedOutcome(0, 1.0, 0))
    assert not loop.done
    assert ports.started == [0, 0]
    end(loop, PausedOutcome(0, 1.0, 2))
    assert loop.done
    assert loop.queue.withdraw(0) is not None


def test_paused_trials_of_an_earlier_sweep_wait_until_they_are_promoted() -> None:
    ports = PromotingPorts()
    loop = make_loop(ports, 2, PeerSweepsObserved())
    loop.asking.n_asked = 2
    known = [WaitingTrial(PlannedTrial(n, {}), deaths=n) for n in range(2)]
    loop.take_over(known, paused={1})
    loop.handle(TimePassed(), 0.0)
    assert ports.started == [0]
    end(loop, FinishedOutcome(0, 1.0, 0.5))
    assert loop.done
    ports.promotable = [1]
    loop.handle(TimePassed(), 2.0)
    assert ports.begun[-1].deaths == 1


def test_the_loop_asks_for_no_more_and_what_runs_or_is_promoted_goes_on() -> None:
    ports = PromotingPorts(0, 1, 2)
    loop = make_loop(ports, 3, PeerSweepsObserved())
    end(loop, PausedOutcome(0, 1.0, 0))
    loop.asking.why_no_more = lambda: "enough"
    ports.promotable = [0]
    end(loop, FinishedOutcome(1, 1.0, 0.5))
    assert loop.snapshot().asking_ended == "enough"
    assert ports.started == [0, 1, 0]
    end(loop, FinishedOutcome(0, 2.0, 0.4))
    assert loop.done
    assert ports.to_ask == [2]
