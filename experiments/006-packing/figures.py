"""What is told of a policy: a figure for each seed, their median and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from fixed_number import Fixed
from virtual_sweep import Sweep

HEAD = (
    "| policy | makespan / bound | × one per GPU | × best number | full | ran out | lost "
    "| over-committed | head later, s |\n|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass
class Figures:
    """Of one policy, a figure for each seed."""

    over_bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    ran_out: list[float] = field(default_factory=list)
    delayed: list[float] = field(default_factory=list)
    n_lost: int = 0
    n_over_committed: int | None = None
    """None: nothing was promised."""

    def add(self, machine: Fixed | Sweep) -> None:
        trials = machine.trials
        self.seconds.append(machine.now)
        self.over_bound.append(machine.now / machine.setting.bound_seconds(trials))
        self.full.append(machine.held_area / machine.now / sum(machine.totals.values()))
        self.ran_out.append(machine.n_ran_out / len(trials))
        self.n_lost += machine.n_lost
        if isinstance(machine, Sweep):
            self.n_over_committed = (self.n_over_committed or 0) + machine.n_over_committed
            if machine.loop.n_ahead:
                self.delayed.append(max(machine.delayed_seconds, default=0.0))

    def row(self, name: str, alone: Figures, best: Figures) -> str:
        """How much faster than these two, in the median over seeds."""
        spread = " | ".join(
            spread_of(numbers) for numbers in (self.over_bound, self._x(alone), self._x(best))
        )
        full, out = statistics.fmean(self.full), statistics.fmean(self.ran_out)
        over = "–" if self.n_over_committed is None else str(self.n_over_committed)
        delayed = f"{max(self.delayed):.1f}" if self.delayed else "–"
        return (
            f"| {name} | {spread} | {full:.0%} | {out:.1%} | {self.n_lost} | {over} | {delayed} |\n"
        )

    def _x(self, other: Figures) -> list[float]:
        return [a / b for a, b in zip(other.seconds, self.seconds, strict=True)]


def spread_of(numbers: Iterable[float]) -> str:
    """`1.43 (1.31–1.52)`: median, least and most."""
    found = sorted(numbers)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})"
