"""Do combined columns help? A study of each table without them and with them: the loss on rows that
it never saw, by how much it changed, and the seconds; and what the choice alone takes.

Tables for which no pair is chosen have the same study twice, and are only timed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import tables
from more_trials import losses, row, say
from peers import Losses

from automl.config import DataConfig, DataKind, DataRule
from automl.data.load import load_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--choose-only", action="store_true", help="train nothing")
    asked = parser.parse_args()
    data = asked.data and asked.data.resolve()
    say("| table | loss off | auto | change, % (95 %) | | s off | auto | s to choose | pairs |")
    say("|---|---|---|---|---|---|---|---|---|")
    for name in asked.tables or tables.names(data):
        split = next(tables.splits(tables.table(name, data), [0]))
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            seconds, pairs = chosen(split)
            tried = f"| {name} | – | – | – | | – | – |"
            if pairs and not asked.choose_only:
                (before, off), (after, auto) = (
                    timed_losses(split, asked.trials, combine) for combine in ("off", "auto")
                )
                tried = f"{row(split, before, after)} {off:.0f} | {auto:.0f} |"
            os.chdir("/")
        say(f"{tried} {seconds:.1f} | {', '.join(pairs)} |")


def chosen(split: tables.Split) -> tuple[float, list[str]]:
    """The seconds of CPU by which the table is read later, and the pairs."""
    split.train.to_csv("table.csv", index=False)
    times, pairs = [], []
    for combine in ("off", "auto"):
        begun = time.process_time()
        config = DataConfig(
            kind=DataKind.csv,
            path="table.csv",
            target=tables.TARGET,
            rules=len(DataRule),
            folds="auto",
            test=0,
            combine=combine,
        )
        pairs = load_dataset(config).columns.combined_names(tables.TARGET)
        times.append(time.process_time() - begun)
    return times[1] - times[0], pairs


def timed_losses(split: tables.Split, n_trials: int, combine: str) -> tuple[Losses, float]:
    begun = time.perf_counter()
    found = losses(split, n_trials, [f"data.combine={combine}", f"study.name={combine}"])
    return found, time.perf_counter() - begun


if __name__ == "__main__":
    main()
