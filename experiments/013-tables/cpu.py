"""CPU of all descendants of a sweep of 20 trials, before and after: of Adult, and of 200 of its
rows, where start-up and recording are nearly all. See auto.md."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "001-throughput"))
from whole_process import run  # noqa: E402 - in another experiment's folder

N_ROWS = 200
QUICK = ("model=linear", "data.folds=1")
"""What trains so little that the rest is all there is; a tree from before it had that knows none of
it."""


def seconds(tree: Path, table: Path, words: tuple[str, ...]) -> tuple[float, float]:
    """Of CPU and by the clock."""
    command = [sys.executable, "-m", "automl", "data=csv", f"data.path={table}"]
    command += ["data.target=income", "study.n_trials=20", *words]
    variables = {"PYTHONPATH": str(tree), "OMP_WAIT_POLICY": "passive"}
    with TemporaryDirectory() as folder:
        timing = run(command, Path(folder), variables=variables)
    return timing.cpu_seconds, timing.wall_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout to compare with")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    adult = asked.data.resolve() / "adult-train.csv"
    before, after = asked.before.resolve(), HERE.parents[1]
    sys.stdout.write("| table | tree | CPU s | each | s |\n|---|---|---|---|---|\n")
    with TemporaryDirectory() as folder:
        few = Path(folder, "few.csv")
        with adult.open() as rows:
            few.write_text("".join(islice(rows, N_ROWS + 1)))
        ways = {
            ("Adult", "before"): (before, adult, ()),
            ("Adult", "after"): (after, adult, ()),
            (f"{N_ROWS} rows", "before"): (before, few, ()),
            (f"{N_ROWS} rows", f"after, {' '.join(QUICK)}"): (after, few, QUICK),
            (f"{N_ROWS} rows", "after"): (after, few, ()),
        }
        for (table, name), way in ways.items():
            found = [seconds(*way) for _ in range(asked.rounds)]
            each = ", ".join(f"{cpu:.1f}" for cpu, _ in found)
            middle = [f"{median(column):.1f}" for column in zip(*found, strict=True)]
            sys.stdout.write(f"| {table} | {name} | {middle[0]} | {each} | {middle[1]} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
