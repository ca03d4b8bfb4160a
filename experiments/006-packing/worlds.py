"""The trials and devices of a simulated sweep, and what no packing could beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from automl.measure.survey.survey_result import SurveyEndReason, SurveyResult
from automl.trial import LOCAL_NODE, DeviceId

GIB = 1024**3
CONTEXT_BYTES = GIB // 2
LONGEST_SURVEY_SECONDS = 2.0


@dataclass(frozen=True)
class Trial:
    peak_bytes: int
    seconds: float
    """Where it has a device to itself."""
    survey: SurveyResult
    """What is seen of its memory before it runs."""


@dataclass(frozen=True)
class Setting:
    """A machine and a sweep on it."""

    n_devices: int
    gib: int
    n_trials: int
    n_at_full_speed: int
    """Trials that one GPU carries without slowing any."""
    sharing_costs: float = 0.0
    """Of all speed on a device, for each trial beyond them."""
    strangers: bool = False
    caches_stay: bool = False
    """Idle workers keep tensors of the trial that they ran (else torch's caches are emptied)."""
    shows_pids: bool = True
    """The driver tells what each process holds, as it does but in containers."""

    @property
    def totals(self) -> dict[DeviceId, int]:
        names = (f"GPU-{n:02}" for n in range(self.n_devices))
        return {DeviceId(LOCAL_NODE, name): self.gib * GIB for name in names}

    @property
    def label(self) -> str:
        """For people."""
        slowing = f", each beyond costs {self.sharing_costs:.0%}" if self.sharing_costs else ""
        others = "; strangers breathe" if self.strangers else ""
        others += "; caches stay" if self.caches_stay else ""
        blind = "" if self.shows_pids else "; no pids are shown"
        return (
            f"{self.n_devices} × {self.gib} GB, {self.n_trials} trials, "
            f"{self.n_at_full_speed} at full speed{slowing}{others}{blind}"
        )

    def trials(self, seed: int) -> list[Trial]:
        """Lognormal sizes and durations. A survey is off by a hidden factor, one for the objective
        (0.85 to 1.35), and by noise (2 to 10 %, as much for all of them)."""
        random, median = Random(seed), 4.0 if self.gib == 24 else 10.0
        factor, drawn = random.uniform(0.85, 1.35), []
        noise = Random(seed + 1000).uniform(0.02, 0.1)
        for _ in range(self.n_trials):
            size = min(median * math.exp(0.9 * random.gauss(0, 1)), 0.85 * self.gib)
            peak = int(max(0.3, size) * GIB)
            seconds = max(10.0, 300 * math.exp(random.gauss(0, 1)))
            seen = int(peak / factor / math.exp(noise * random.gauss(0, 1)))
            drawn.append(Trial(peak, seconds, surveyed(seen)))
        return drawn

    def bound_seconds(self, trials: Sequence[Trial]) -> float:
        """No packing is faster: by memory, by speed, by the longest trial."""
        room = sum(total - CONTEXT_BYTES for total in self.totals.values())
        by_memory = sum(t.peak_bytes * t.seconds for t in trials) / room
        at_once = self.n_devices * self.n_at_full_speed
        by_speed = sum(t.seconds for t in trials) / at_once
        return max(by_memory, by_speed, max(t.seconds for t in trials))


def surveyed(seen_bytes: int) -> SurveyResult:
    """What is seen of a trial, a fifth of it weights."""
    return SurveyResult(seen_bytes // 5, seen_bytes, seen_bytes, 3, SurveyEndReason.REPORTED)
