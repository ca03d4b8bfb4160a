"""What chooses and waits in tests that know how long trials take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from automl.running.chooser import Chooser
from automl.running.durations import Durations
from automl.running.messages import Running, Waiting
from automl.trial import DeviceKind, Work
from tests.running.simulated_machine import RELEASED_AFTER, Plan


class Known(Chooser):
    """As if trials like these had been timed."""

    def __init__(self, plans: Sequence[Plan], **how: Any) -> None:
        super().__init__(lambda params: Work(1, 1.0), frozenset(DeviceKind), **how)
        self._plans = plans
        self.paces.add(-1, DeviceKind.CPU, 1.0, 1.0)

    def seconds(self, waiting: Waiting, kind: DeviceKind) -> float | None:
        return self._plans[waiting.trial.number].seconds_on(kind)


class Told(Durations):
    """How long trials take, from admission to the reservation's return; or about so long."""

    def __init__(self, plans: Sequence[Plan], rough: float) -> None:
        super().__init__()
        self._plans, self._rough = plans, rough

    def of(self, waiting: Waiting, share: float = 0.5) -> float:
        plan = self._plans[waiting.trial.number]
        seconds = plan.seconds_on(waiting.where or DeviceKind.GPU)
        return self._rough * (plan.hosted_after + seconds + RELEASED_AFTER)

    def left(self, running: Running, now_seconds: float) -> float:
        return running.since_seconds + self.of(running.waiting) - now_seconds
