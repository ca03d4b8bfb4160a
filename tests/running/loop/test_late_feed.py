"""A trial that is fed to a pack which has just ended: nobody takes it, and it is not lost."""

from __future__ import annotations

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import ExecutionStart, PlannedTrial
from automl.trial import FinishedOutcome, PackKind
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
PAIR = PackKind("a", 2)


class LastLook(World):
    """Its packs have looked into their feed for the last time before they tell how a lane ended."""

    _starting = False

    def submit(self, start: ExecutionStart) -> None:
        self._starting = True
        super().submit(start)
        self._starting = False

    def feed(self, key: int, trial: PlannedTrial) -> None:
        if self._starting:
            super().feed(key, trial)


def test_a_trial_fed_to_a_pack_that_had_just_ended_runs_in_the_next() -> None:
    short, long = (Plan(GB, GB, seconds=s, kind=PAIR) for s in (1.0, 2.0))
    world = LastLook(GPU, [short, long, short], limits=AdmissionLimits(1, 0, 5.0))
    world.run()
    assert {n: type(o) for n, o in world.told.items()} == dict.fromkeys(range(3), FinishedOutcome)
    assert world.packs == {0: [0, 1], 2: [2]}
    assert world.loop.running == {}
