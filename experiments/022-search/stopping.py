"""How good is the gain that `study.stop_gain` expects? See README.md, Enough.

In whole simulated studies, the gain that is expected after some trials is compared with what as
many again have brought. The expectation is the product's own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from problems import CLOSED
from searching import Job, run_ours

from automl.search.gain_forecast import expected_gain

MARKS = (20, 35, 50)
N_TRIALS = 2 * MARKS[-1]


def run(sampler: str, name: str, seed: int) -> list[float]:
    """Return the values of one study, in their order."""
    return run_ours(Job(name, sampler, 1, seed, N_TRIALS), CLOSED[name])[0]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("samplers", nargs="*", default=["random", "tpe"])
    arguments.add_argument("--seeds", type=int, default=10)
    args = arguments.parse_args()
    jobs = list(product(args.samplers, CLOSED, range(args.seeds)))
    with ProcessPoolExecutor(2) as pool:
        values = dict(zip(jobs, pool.map(run, *zip(*jobs, strict=True)), strict=True))
    for sampler, name in product(args.samplers, CLOSED):
        cells = [sampler, name]
        for n in MARKS:
            studies = [values[sampler, name, seed] for seed in range(args.seeds)]
            expected = statistics.fmean(expected_gain(keys[:n]) or 0.0 for keys in studies)
            came = statistics.fmean(min(keys[:n]) - min(keys[: 2 * n]) for keys in studies)
            cells.append(f"{expected:.2g}, {came:.2g}")
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
