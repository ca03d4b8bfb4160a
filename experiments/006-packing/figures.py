"""What is told of a policy: a figure for each seed, their median and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from virtual_machine import Machine
from virtual_sweep import Sweep


@dataclass
class Figures:
    """Of one policy, a figure for each seed."""

    over_bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    ran_out: list[float] = field(default_factory=list)
    delayed: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, machine: Machine) -> None:
        trials = machine.trials
        self.seconds.append(machine.now)
        self.over_bound.append(machine.now / machine.setting.bound_seconds(trials))
        self.full.append(machine.held_area / machine.now / sum(machine.totals.values()))
        self.ran_out.append(machine.n_ran_out / len(trials))
        if isinstance(machine, Sweep):
            self.delayed.append(max(machine.delayed_seconds, default=0.0))
            self.failed += machine.n_failed

    def row(self, name: str, alone: Figures) -> str:
        faster = [a / b for a, b in zip(alone.seconds, self.seconds, strict=True)]
        spread = f"{spread_of(self.over_bound)} | {spread_of(faster)}"
        full, out = statistics.fmean(self.full), statistics.fmean(self.ran_out)
        delayed = f"{max(self.delayed):.0f}" if self.delayed else "–"
        return f"| {name} | {spread} | {full:.0%} | {out:.1%} | {self.failed} | {delayed} |\n"


def spread_of(numbers: Iterable[float]) -> str:
    """`1.43 (1.31–1.52)`: median, least and most."""
    found = sorted(numbers)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})"
