"""How full do GPUs become, and what does backfill add? See packing.md.

The real loop, policy, ledger, requests, settling and caps decide; devices, trials and the clock are
simulated: memory that appears late, contexts and caches that stay with idle workers, strangers that
breathe.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence

from figures import HEAD, Figures
from fixed_number import Fixed, Fraction
from governed_sweep import Governed
from virtual_sweep import Known, Sweep
from worlds import Setting, Trial

SETTINGS: Mapping[str, Setting] = {
    "1x24": Setting(1, 24, 60, 16),
    "1x80": Setting(1, 80, 60, 16),
    "1x24-container": Setting(1, 24, 60, 16, shows_pids=False),
    "8x24": Setting(8, 24, 300, 16),
    "8x80": Setting(8, 80, 300, 16),
    "8x24-shared-0": Setting(8, 24, 300, 4),
    "8x24-shared-3": Setting(8, 24, 300, 4, 0.03),
    "8x24-shared-10": Setting(8, 24, 300, 4, 0.1),
    "8x80-shared-0": Setting(8, 80, 300, 4),
    "8x24-strangers": Setting(8, 24, 300, 16, strangers=True, caches_stay=True),
    "8x80-strangers": Setting(8, 80, 300, 16, strangers=True, caches_stay=True),
    "8x80-container": Setting(8, 80, 300, 16, shows_pids=False),
    "64x24": Setting(64, 24, 960, 16),
    "64x80": Setting(64, 80, 960, 16),
}
POLICIES: Mapping[str, Known] = {
    "unknown, probing": Known("unknown"),
    "exact, nobody passes": Known("exact", is_measured=False),
    "exact, 16 ahead, exact durations": Known("exact", 16, exact_durations=True, is_measured=False),
    "exact, 16 ahead": Known("exact", 16, is_measured=False),
    "20 % over, nobody passes": Known("20 % over", is_measured=False),
    "20 % over, 16 ahead": Known("20 % over", 16, is_measured=False),
    "20 % over and measured, 16 ahead": Known("20 % over", 16),
    "surveyed, nobody passes": Known("surveyed"),
    "surveyed, 16 ahead": Known("surveyed", 16),
    "surveyed, 4 ahead": Known("surveyed", 4),
    "surveyed, 16 ahead, governed": Known("surveyed", 16, governed=True),
    "surveyed, nobody passes, governed": Known("surveyed", governed=True),
}
NUMBERS = (1, 2, 3, 4, 6, 8)
"""Of trials on one GPU, of which the best is found afterwards."""
Worlds = Sequence[tuple[Sequence[Trial], int]]


def table(setting: Setting, seeds: Sequence[int], policies: Sequence[str]) -> None:
    """Print one, each row as soon as it is there."""
    sys.stdout.write(f"\n{setting.label}:\n\n{HEAD}")
    worlds = [(setting.trials(seed), seed) for seed in seeds]
    fixed = {k: _figures(Fixed(setting, *world, k) for world in worlds) for k in NUMBERS}
    best = min(fixed, key=lambda k: statistics.median(fixed[k].over_bound))
    alone, tuned = fixed[1], fixed[best]
    sys.stdout.write(alone.row("one per GPU", alone, tuned))
    sys.stdout.write(tuned.row(f"best fixed number, {best}", alone, tuned))
    for k in (2, 4):
        ray = _figures(Fraction(setting, *world, k) for world in worlds)
        sys.stdout.write(ray.row(f"fraction {1 / k}", alone, tuned))
    sys.stdout.flush()
    for name in policies:
        known = POLICIES[name]
        kind = Governed if known.governed else Sweep
        found = _figures(kind(setting, *world, known) for world in worlds)
        sys.stdout.write(found.row(name, alone, tuned))
        sys.stdout.flush()


def _figures(machines: Iterable[Fixed | Sweep]) -> Figures:
    figures = Figures()
    for machine in machines:
        machine.run()
        figures.add(machine)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", nargs="+", choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=POLICIES, help="this policy alone")
    arguments = parser.parse_args()
    for name in arguments.setting:
        table(SETTINGS[name], range(arguments.seeds), arguments.only or list(POLICIES))


if __name__ == "__main__":
    main()
