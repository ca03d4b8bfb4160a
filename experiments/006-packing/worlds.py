"""The trials and devices of a simulated sweep, and what no packing could beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from automl.trial import LOCAL_NODE, DeviceId

GIB = 1024**3
CONTEXT_BYTES = GIB // 2


@dataclass(frozen=True)
class Trial:
    peak_bytes: int
    seconds: float
    structure_bytes: int
    """What a survey says of its memory."""


@dataclass(frozen=True)
class Setting:
    n_devices: int
    gib: int
    n_trials: int
    n_at_full_speed: int
    """Trials that one GPU carries without slowing any."""
    sharing_costs: float = 0.0
    """Of all speed on a device, for each trial beyond them."""
    strangers: bool = False

    @property
    def totals(self) -> dict[DeviceId, int]:
        names = (f"GPU-{n:02}" for n in range(self.n_devices))
        return {DeviceId(LOCAL_NODE, name): self.gib * GIB for name in names}

    def trials(self, seed: int) -> list[Trial]:
        """Lognormal sizes and durations; a survey is off by a factor for all and 5 % for each."""
        random, median = Random(seed), 4.0 if self.gib == 24 else 10.0
        factor, drawn = random.uniform(0.85, 1.35), []
        for _ in range(self.n_trials):
            size = min(median * math.exp(0.9 * random.gauss(0, 1)), 0.85 * self.gib)
            peak = int(max(0.3, size) * GIB)
            seconds = max(10.0, 300 * math.exp(random.gauss(0, 1)))
            noise = math.exp(0.05 * random.gauss(0, 1))
            drawn.append(Trial(peak, seconds, int(peak / factor / noise)))
        return drawn

    def bound_seconds(self, trials: Sequence[Trial]) -> float:
        """No packing is faster: by memory, by speed, by the longest trial."""
        room = sum(total - CONTEXT_BYTES for total in self.totals.values())
        by_memory = sum(t.peak_bytes * t.seconds for t in trials) / room
        at_once = self.n_devices * self.n_at_full_speed
        by_speed = sum(t.seconds for t in trials) / at_once
        return max(by_memory, by_speed, max(t.seconds for t in trials))
