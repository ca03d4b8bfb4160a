"""How full do GPUs become, and what does backfill add? See README.md.

The real loop, policy, ledger and requests decide; devices, trials and the clock are simulated:
memory that appears late, contexts that stay with idle workers, strangers that come and go.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence

from figures import Figures
from fixed_number import Fixed
from virtual_sweep import Known, Sweep
from worlds import Setting

POLICIES: Mapping[str, Known] = {
    "unknown: each alone": Known("unknown"),
    "exact, nobody passes": Known("exact"),
    "exact, 16 ahead, exact durations": Known("exact", 16, exact_durations=True),
    "exact, 16 ahead": Known("exact", 16),
    "exact, 4 ahead": Known("exact", 4),
    "20 % over, nobody passes": Known("20 % over"),
    "20 % over, 16 ahead": Known("20 % over", 16),
    "surveyed, nobody passes": Known("surveyed"),
    "surveyed, 16 ahead": Known("surveyed", 16),
    "surveyed, 4 ahead": Known("surveyed", 4),
}


def table(setting: Setting, seeds: Sequence[int]) -> None:
    title = f"{setting.n_devices} x {setting.gib} GB, {setting.n_trials} trials, {setting}"
    head = "| policy | makespan / bound | x faster | full | ran out | lost | head later, s |"
    sys.stdout.write(f"\n{title}\n{head}\n|---|---|---|---|---|---|---|\n")
    worlds = [(setting.trials(seed), seed) for seed in seeds]
    fixed: dict[int, Figures] = {k: Figures() for k in (1, 2, 3, 4, 6, 8)}
    for k, figures in fixed.items():
        for trials, seed in worlds:
            figures.add(Fixed(setting, trials, seed, k).run())
    best = min(fixed, key=lambda k: statistics.median(fixed[k].over_bound))
    sys.stdout.write(fixed[1].row("one per GPU (a fraction safe for the largest)", fixed[1]))
    sys.stdout.write(fixed[best].row(f"best fixed number, {best}", fixed[1]))
    for name, known in POLICIES.items():
        figures = Figures()
        for trials, seed in worlds:
            figures.add(Sweep(setting, trials, seed, known).run())
        sys.stdout.write(figures.row(name, fixed[1]))
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", type=int, help="the n-th table alone")
    arguments = parser.parse_args()
    settings = [
        Setting(1, 24, 60, 4),
        Setting(8, 24, 300, 8),
        Setting(8, 80, 300, 4),
        Setting(8, 80, 300, 16),
        Setting(8, 24, 300, 4, 0.03),
        Setting(8, 24, 300, 4, 0.1),
        Setting(8, 24, 300, 8, strangers=True),
    ]
    chosen = settings if arguments.only is None else [settings[arguments.only]]
    for setting in chosen:
        table(setting, range(arguments.seeds))


if __name__ == "__main__":
    main()
