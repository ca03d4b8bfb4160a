"""Fits each default of scikit-learn, LightGBM and CatBoost on each table, one after another in one
process, and writes down what they are worth on the test rows, in the folder and form of peers.py.

Seconds are of fitting and predicting, without imports. What is there already is left.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import tables
from contender import TOOLS, Work
from peers import DEFAULTS, Key, Result, read, say, scored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="0, 1, 2")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument(
        "--tools", nargs="+", default=[name for name in DEFAULTS if name != "realmlp"]
    )
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    done = {result.key for result in read(asked.out)}
    warnings.simplefilter("ignore")
    for number in asked.splits:
        for name in asked.tables or tables.names(asked.data):
            split = next(tables.splits(tables.table(name, asked.data), [number]))
            wanted = [t for t in asked.tools if Key(name, number, t, 0) not in done]
            for result in fitted(split, wanted, asked.out):
                with (asked.out / "results.jsonl").open("a") as stream:
                    stream.write(json.dumps(asdict(result)) + "\n")
                say(f"{name} {number} {result.key.tool}: {result.loss} {result.wall_seconds} s")


def fitted(split: tables.Split, tools: list[str], out: Path) -> Iterator[Result]:
    """Yield the result of each of the tools."""
    with tempfile.TemporaryDirectory() as folder:
        work = work_of(split, Path(folder))
        for tool in tools:
            key = Key(split.table, split.number, tool, 0)
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                said, classes = TOOLS[tool](work)
            except (ValueError, RuntimeError) as error:
                yield Result(key, len(split.train), failed=str(error)[-500:])
                continue
            yield replace(
                scored(key, split, out, np.asarray(said), [str(x) for x in classes]),
                wall_seconds=round(time.perf_counter() - wall, 2),
                cpu_seconds=round(time.process_time() - cpu, 2),
            )


def work_of(split: tables.Split, folder: Path) -> Work:
    """Read the table back from files, as other tools do."""
    split.train.to_csv(folder / "train.csv", index=False)
    split.test.drop(columns=tables.TARGET).to_csv(folder / "test.csv", index=False)
    of_classes = split.task == tables.CLASSES
    train = pd.read_csv(folder / "train.csv", dtype={tables.TARGET: str} if of_classes else None)
    return Work(folder, train, pd.read_csv(folder / "test.csv"), of_classes, time.time(), ())


if __name__ == "__main__":
    main()
