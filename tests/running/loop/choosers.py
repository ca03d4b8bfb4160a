"""What chooses and waits in tests that know how long trials take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from automl.running.loop.messages import WaitingTrial
from automl.running.loop.packing import TrialDurations
from automl.running.loop.trial_paces import DevicePaceModel
from automl.trial import DeviceKind, TrainingWork
from tests.running.loop.simulated_machine import RELEASED_AFTER, Plan


class Known(DevicePaceModel):
    """A chooser that knows the plans, as if trials like these had been timed."""

    def __init__(self, plans: Sequence[Plan], **how: Any) -> None:
        super().__init__(lambda params: TrainingWork(1, 1.0), frozenset(DeviceKind), **how)
        self._plans = plans
        self.paces.add(-1, DeviceKind.CPU, 1.0, 1.0)

    def seconds(self, waiting: WaitingTrial, kind: DeviceKind) -> float | None:
        return self._plans[waiting.trial.number].seconds_on(kind)


class Told(TrialDurations):
    """How long trials take, from admission to the reservation's return; or about so long."""

    def __init__(self, plans: Sequence[Plan], rough: float) -> None:
        super().__init__()
        self._plans, self._rough = plans, rough

    def of(self, waiting: WaitingTrial, share: float = 0.5) -> float:
        plan = self._plans[waiting.trial.number]
        seconds = plan.seconds_on(waiting.where or DeviceKind.GPU)
        return self._rough * (plan.hosted_after + seconds + RELEASED_AFTER)

    def left(self, waiting: WaitingTrial, kind: DeviceKind, so_far: float) -> float:
        return self.of(waiting) - so_far
