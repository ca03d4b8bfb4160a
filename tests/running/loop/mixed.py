"""A simulated machine with the CPU and a GPU, which keeps where each trial was started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from automl.admission.limits import AdmissionLimits
from automl.running.loop.messages import ExecutionStart, PlannedTrial
from automl.trial import (
    DeviceKind,
)
from tests.running.loop.choosers import Known
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB = 1000**3
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
MACHINE = {"host": 64 * GB, "GPU-a": 80 * GB}
LIMITS = AdmissionLimits(None, 0, 5.0, max_per_gpu=1, max_on_host=4)


@dataclass
class Mixed(World):
    """Keeps where each trial was started, one after another."""

    where: dict[int, list[DeviceKind]] = field(default_factory=dict)
    n_looked_at: int = 0

    def submit(self, start: ExecutionStart) -> None:
        for trial in [w.trial for w in start.group]:
            self.where.setdefault(trial.number, []).append(start.placement.kind)
        super().submit(start)

    def feed(self, key: int, trial: PlannedTrial) -> None:
        kind = self.loop.executions[key].placement.kind
        if not self.where.get(trial.number):  # it takes a lane that came free
            self.where[trial.number] = [kind]
        super().feed(key, trial)


def mixed(plans: Sequence[Plan], **how: Any) -> Mixed:
    how.setdefault("limits", LIMITS)
    how.setdefault("chooser", Known(plans))
    return Mixed(MACHINE, plans, own_processes=True, n_ahead=16, **how)


def plan(seconds: float = 10.0, cpu_takes: float = 100.0, **how: Any) -> Plan:
    return Plan(GB, GB, seconds=seconds, cpu_takes=cpu_takes, **how)
