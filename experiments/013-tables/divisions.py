"""What a study of each table comes to on rows that it never saw, by so many trials in each of the
divisions (tables.py): the mean, and each."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import tables
from more_trials import losses, say


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("overrides", nargs="*", help="settings, such as data.folds=1")
    asked = parser.parse_args()
    data = asked.data and asked.data.resolve()
    say("| table | mean | each | seconds |\n|---|---|---|---|")
    for name in asked.tables or tables.names(data):
        began, found = time.perf_counter(), []
        for split in tables.splits(tables.table(name, data), asked.splits):
            with tempfile.TemporaryDirectory() as work:
                os.chdir(work)
                each = losses(split, asked.trials, asked.overrides)
                os.chdir("/")
            found.append(each.mean() ** (0.5 if split.task == tables.AMOUNTS else 1))
        shown = ", ".join(f"{loss:.4g}" for loss in found)
        seconds = (time.perf_counter() - began) / len(found)
        say(f"| {name} | {np.mean(found):.4g} | {shown} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
