"""A simulated sweep whose governor finds how many trials share a device, by their pace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from virtual_sweep import Known, Sweep
from worlds import Setting, Trial

from automl.admission.governor import SharingGovernor

LOOK_SECONDS = 2.5
"""Between two readings, where the governor looks; 0.5 in truth."""
NOISE = 0.1
"""Of the steps that a trial takes from one reading to the next."""


class Governed(Sweep):
    """Each trial takes steps, of which the governor sees the noisy count at every reading."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, known: Known) -> None:
        self._noise = Random(seed)
        super().__init__(setting, trials, seed, known)
        self.loop._placing.governor = SharingGovernor()
        self.loop._placing.limits = replace(self.loop.limits, stale_seconds=2 * LOOK_SECONDS)
        self._rates = [math.exp(self._noise.uniform(0, math.log(100))) for _ in trials]
        """Steps per second at full speed."""
        self._steps: dict[int, float] = dict.fromkeys(range(len(trials)), 0.0)
        self._left: dict[int, float] = {}
        self.at_once: list[int] = []

    def n_steps(self) -> Mapping[int, int]:
        for device, here in self.on.items():
            self._advance(device)
            self.at_once.append(len(here))
            for number, trial in here.items():
                done = self._left.get(number, self.trials[number].seconds) - trial.left_seconds
                self._left[number] = trial.left_seconds
                if trial.held_bytes:  # it has begun to train
                    noise = math.exp(NOISE * self._noise.gauss(0, 1))
                    self._steps[number] += max(0.0, done * self._rates[number] * noise)
        return {number: int(n) for number, n in self._steps.items()}

    def _tick(self) -> None:
        self._read()
        self.at(LOOK_SECONDS, self._tick)
