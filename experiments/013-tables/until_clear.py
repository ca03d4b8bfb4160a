"""Do combined columns that are judged until it is clear fare as those judged by all folds?

Targets are noise and a part of the product of two columns, from none to one that decides: the
gain of the product is often close to the least that is enough. Each is judged in both ways.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from automl.data.columns import CombinedColumn
from automl.data.pair_selection import is_enough, out_of_fold_gain
from automl.data.preprocessing import Preprocessing

N_ROWS, LARGEST_PART = 1000, 1.0


def judged(seed: int, *, has_classes: bool) -> tuple[list[bool], list[float]]:
    """Return whether the product is taken by all folds and until it is clear, and the seconds of
    CPU of each."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(N_ROWS, 6))).rename(columns="x{}".format)
    part = rng.uniform(0, LARGEST_PART)
    values = part * (frame.x0 * frame.x1).to_numpy() + rng.normal(size=N_ROWS)
    y = (values > 0).astype(np.int64) if has_classes else values
    before = Preprocessing.fit(frame)
    after = before.with_pairs(frame, [CombinedColumn("x0", "*", "x1")])
    own, more = ((p.columns, p.read_cells(frame)[0]) for p in (before, after))
    taken, seconds = [], []
    for until_clear in (False, True):
        begun = time.process_time()
        gain = out_of_fold_gain(own, more, y, y[:, None].astype(float), until_clear=until_clear)
        seconds.append(time.process_time() - begun)
        taken.append(is_enough(*gain))
    return taken, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=200)
    n_targets = parser.parse_args().targets
    found: Counter[tuple[bool, ...]] = Counter()
    total = np.zeros(2)
    with threadpool_limits(1):
        for seed in range(n_targets):
            taken, seconds = judged(seed, has_classes=seed % 2 == 1)
            found[tuple(taken)] += 1
            total += seconds
            if (seed + 1) % 10 == 0 or seed + 1 == n_targets:
                by_all = found[True, True] + found[True, False]
                differ = found[True, False] + found[False, True]
                sys.stdout.write(
                    f"{seed + 1} targets, {by_all} taken by all folds; decided otherwise until "
                    f"clear: {differ}; {total[0]:.0f} and {total[1]:.0f} s of CPU\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
