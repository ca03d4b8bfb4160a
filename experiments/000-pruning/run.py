"""What does pruning save, and what does it cost? See README.md.

Runs the sweep of conf/pruning.yaml with and without pruning, in rounds: in each round both get the
same seed, and so the same params; who goes first changes from round to round. Each sweep is a
whole process in a fresh folder. Prints a table and writes the raw numbers to results.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from automl import load
from automl.record.studies import read_study
from automl.trial import TrialState, trial_name

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PRUNERS = ("none", "halving")
TARGET = "income"


@dataclass(frozen=True)
class Measured:
    """One sweep."""

    pruner: str
    seed: int
    seconds: float
    """Of the whole process, start-up and the last record in MLflow included."""
    n_epochs: int
    """Trained in all trials together: the work, whatever else the machine did meanwhile."""
    n_pruned: int
    val_error: float
    """The best among the trials' epochs, by which the winner is chosen."""
    test_error: float
    """Of the winner's best.pt, on rows that no sweep saw."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--train", type=Path, required=True, help="Adult's training table, CSV")
    arguments.add_argument("--test", type=Path, required=True, help="Adult's test table, CSV")
    arguments.add_argument("--rounds", type=int, default=3)
    args = arguments.parse_args()
    results: list[Measured] = []
    for seed in range(args.rounds):
        for pruner in PRUNERS if seed % 2 == 0 else reversed(PRUNERS):
            results.append(sweep(pruner, seed, args.train.resolve(), args.test.resolve()))
            say(f"round {seed}: {results[-1]}")
            RESULTS.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    for line in table(results):
        say(line)


def sweep(pruner: str, seed: int, train: Path, test: Path) -> Measured:
    """Run one sweep in a fresh folder and read what it left there."""
    with tempfile.TemporaryDirectory(prefix="pruning-") as folder:
        command = [sys.executable, "-m", "automl", "--config-dir", str(HERE / "conf")]
        command += ["--config-name", "pruning", "study.name=adult", f"study.seed={seed}"]
        command += [f"pruner={pruner}", f"data.path={train}"]
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - start
        path = Path(folder) / "studies" / "adult"
        study = read_study(path)
        best = study.best()
        assert best is not None
        assert best.value is not None
        model = path / "checkpoints" / trial_name(best.number) / "best.pt"
        return Measured(
            pruner=pruner,
            seed=seed,
            seconds=seconds,
            n_epochs=sum(trial.n_reports for trial in study.trials.values()),
            n_pruned=study.counts()[TrialState.PRUNED],
            val_error=best.value,
            test_error=error_on(model, test),
        )


def error_on(best: Path, test: Path) -> float:
    """Share of the rows of `test` that the model in `best` gets wrong."""
    frame = pd.read_csv(test)
    predicted = load(best).predict(frame)
    return float((predicted != frame[TARGET].str.strip()).mean())


def table(results: Sequence[Measured]) -> list[str]:
    """Medians over the rounds, and the median of the ratios within a round."""
    lines = [
        "| figure (median of rounds) | none | halving | halving / none |",
        "|---|---|---|---|",
    ]
    figures: list[tuple[str, Callable[[Measured], float], str]] = [
        ("seconds, whole process", lambda r: r.seconds, ".1f"),
        ("epochs trained", lambda r: r.n_epochs, ".0f"),
        ("trials pruned, of 20", lambda r: r.n_pruned, ".0f"),
        ("best validation error", lambda r: r.val_error, ".2%"),
        ("test error of the winner", lambda r: r.test_error, ".2%"),
    ]
    for name, figure, form in figures:
        none, halving = ([figure(r) for r in results if r.pruner == p] for p in PRUNERS)
        by_seed = {p: {r.seed: figure(r) for r in results if r.pruner == p} for p in PRUNERS}
        ratios = [by_seed["halving"][s] / v for s, v in by_seed["none"].items() if v]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        cells = f"{statistics.median(none):{form}} | {statistics.median(halving):{form}}"
        lines.append(f"| {name} | {cells} | {ratio} |")
    return lines


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
