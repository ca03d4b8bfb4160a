"""What probing alone gives, and what finding the number of trials that share a GPU costs against
knowing it. See governor.md.

As in `packing.py`: the real loop, policy, ledger, requests, caps and governor decide; devices,
trials and the clock are simulated.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from random import Random

from figures import HEAD, Figures, spread_of
from fixed_number import Fixed
from governed_sweep import Governed
from virtual_sweep import Known, Sweep
from worlds import GIB, Setting, Trial, surveyed

N_TRIALS = 60
"""For the governor."""
SMALL = Known("exact", is_measured=False)
"""Requests are exact and small: the governor alone bounds how many share the GPU."""


def probing_table(setting: Setting, seeds: Sequence[int]) -> None:
    """Nothing is known of any trial before it runs."""
    sys.stdout.write(f"\n{setting.label}:\n\n{HEAD}")
    worlds = [(setting.trials(seed), seed) for seed in seeds]
    alone, probing = Figures(), Figures()
    for trials, seed in worlds:
        alone.add(Fixed(setting, trials, seed, 1).run())
        probing.add(Sweep(setting, trials, seed, Known("unknown")).run())
    sys.stdout.write(alone.row("one per GPU", alone, alone))
    sys.stdout.write(probing.row("unknown: probing", alone, alone))
    sys.stdout.flush()


def governor_table(seeds: Sequence[int]) -> None:
    """One GPU of 80 GB, on which all trials have room."""
    head = "| sharing costs | best at | best fixed number | governor / best | at once, median |"
    sys.stdout.write(f"\n{head}\n|---|---|---|---|---|\n")
    worst = []
    for costs in (0.0, 0.03, 0.1):
        for n_best in range(1, 9):
            setting = Setting(1, 80, N_TRIALS, n_best, costs)
            ratios: list[float] = []
            at_once: list[int] = []
            best_numbers: list[int] = []
            for seed in seeds:
                trials = small_trials(seed)
                fixed = {k: Fixed(setting, trials, seed, k).run().now for k in range(1, 17)}
                best = min(fixed, key=lambda k: fixed[k])
                governed = Governed(setting, trials, seed, SMALL)
                governed.run()
                ratios.append(governed.now / fixed[best])
                at_once.append(statistics.median_low(governed.at_once))
                best_numbers.append(best)
            worst.append(statistics.median(ratios))
            best, found = map(statistics.median_low, (best_numbers, at_once))
            sys.stdout.write(
                f"| {costs:.0%} | {n_best} | {best} | {spread_of(ratios)} | {found} |\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"\nworst median: {max(worst):.2f}\n")


def small_trials(seed: int) -> list[Trial]:
    """Of 0.5 to 2 GiB, and 400 s where nobody slows them (lognormal, σ 0.5)."""
    random, drawn = Random(seed), []
    for _ in range(N_TRIALS):
        peak = int(random.uniform(0.5, 2.0) * GIB)
        seconds = max(10.0, 400 * math.exp(0.5 * random.gauss(0, 1)))
        drawn.append(Trial(peak, seconds, surveyed(peak)))
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="of the seeds")
    parser.add_argument("--only", choices=["probing", "governor"])
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.only != "governor":
        for setting in (Setting(8, 24, 300, 8), Setting(8, 80, 300, 8)):
            probing_table(setting, seeds)
    if arguments.only != "probing":
        governor_table(seeds)


if __name__ == "__main__":
    main()
