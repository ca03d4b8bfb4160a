"""The loop holds trials back that would make those of a device slower together."""

from __future__ import annotations

from dataclasses import dataclass, field

from automl.admission.governor import SharingGovernor
from automl.admission.limits import AdmissionLimits
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 80 * GB}


@dataclass
class Paced(World):
    """Two run at full speed on the GPU; a third has all of them 4 % slower together."""

    most_at_once: int = 0
    reasons: set[str] = field(default_factory=set)
    _done: dict[int, float] = field(default_factory=dict)
    _counted_seconds: float = 0.0

    def n_steps(self) -> dict[int, int]:
        running = [e for e in self.machine.executions.values() if e.runs and not e.over]
        n, seconds = len(running), self.now - self._counted_seconds
        self._counted_seconds = self.now
        self.most_at_once = max(n, self.most_at_once)
        pace = {1: 1.0, 2: 1.0}.get(n, 2 * 0.96 / max(1, n))
        for execution in running:
            before = self._done.get(execution.key, 0.0)
            self._done[execution.key] = before + 30 * seconds * pace
        if self.loop.queue.queued:
            self.reasons.add(self.loop.queue.queued[0].refusal.reason)
        elif self.loop.asking.refusal is not None:
            self.reasons.add(self.loop.asking.refusal.reason)
        return {execution.key: int(self._done[execution.key]) for execution in running}


def paced(*, n_trials: int = 12, seconds: float = 40.0, governor: SharingGovernor | None) -> Paced:
    plans = [Plan(GB, GB, seconds=seconds + n) for n in range(n_trials)]
    return Paced(
        GPU, plans, limits=AdmissionLimits(None, 0, 5.0), own_processes=True, governor=governor
    )


def test_one_more_is_tried_and_not_again_where_it_does_not_pay() -> None:
    world = paced(governor=SharingGovernor())
    world.run()
    assert world.most_at_once == 3
    assert (
        "waiting: 2 trials share GPU-a… (sim): a third made them 4 % slower together"
        in world.reasons
    )
    assert world.now > 6 * 40, "two at a time after that"


def test_nobody_is_held_back_where_the_user_has_said_how_many() -> None:
    world = paced(governor=None)
    world.run()
    assert world.now < 60, "all at once"


def test_nor_for_long_where_trials_end_before_their_pace_is_known() -> None:
    world = paced(n_trials=40, seconds=1.0, governor=SharingGovernor())
    world.run()
    assert world.most_at_once > 8
