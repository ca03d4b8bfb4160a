"""Choosers for tests that know how long trials take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from automl.running.chooser import Chooser
from automl.running.messages import Waiting
from automl.trial import DeviceKind, Work
from tests.running.simulated_machine import Plan


class Known(Chooser):
    """As if trials like these had been timed."""

    def __init__(self, plans: Sequence[Plan], **how: Any) -> None:
        super().__init__(lambda params: Work(1, 1.0), frozenset(DeviceKind), **how)
        self._plans = plans
        self.paces.add(-1, DeviceKind.CPU, 1.0, 1.0)

    def seconds(self, waiting: Waiting, kind: DeviceKind) -> float | None:
        return self._plans[waiting.trial.number].seconds_on(kind)
