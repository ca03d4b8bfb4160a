"""Are more trials ever worse? A study of each table with few trials, then the same with many: the
loss on rows that it never saw, and by how much it changed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tables
from peers import Losses, losses_of
from peers_report import compared

import automl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument("--trials", type=int, nargs=2, default=[20, 200])
    parser.add_argument("overrides", nargs="*", help="settings, such as data.folds=1")
    asked = parser.parse_args()
    data = asked.data and asked.data.resolve()
    few, many = asked.trials
    say(f"| table | {few} trials | {many} trials | change, % (95 %) | |")
    say("|---|---|---|---|---|")
    for name in asked.tables or tables.names(data):
        split = next(tables.splits(tables.table(name, data), [0]))
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            before, after = (losses(split, n, asked.overrides) for n in asked.trials)
            os.chdir("/")
        say(row(split, before, after))


def losses(split: tables.Split, n_trials: int, overrides: list[str]) -> Losses:
    """By row of the test part; the second call goes on with the study of the first."""
    study = automl.fit(
        split.train,
        tables.TARGET,
        n_trials=n_trials,
        name=split.table,
        overrides=[f"data.task={split.task}", *overrides],
    )
    if split.task == tables.AMOUNTS:
        return losses_of(split, study.predict(split.test), ())[0]
    classes = [str(name) for name in study.model.classes]
    return losses_of(split, np.asarray(study.predict_probabilities(split.test)), classes)[0]


def row(split: tables.Split, before: Losses, after: Losses) -> str:
    squared = split.task == tables.AMOUNTS
    change = compared(after, before, np.ones(len(after)), squared=squared)
    means = [of.mean() ** (0.5 if squared else 1) for of in (before, after)]
    shown = " | ".join(f"{mean:.4g}" for mean in means)
    worse = "worse by more than chance" if change.is_behind else ""
    return f"| {split.table} | {shown} | {change} | {worse} |"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
