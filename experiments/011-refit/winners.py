"""A study's best trial against its refits, on rows that neither saw: see README.md."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import automl

TARGET = "income"
SPACE = (
    "space={depth: {low: 1, high: 2}, width: {choices: [32, 64]}, batch_size: 256, "
    "lr: {low: 1e-3, high: 1e-1, log: true}, weight_decay: {low: 1e-6, high: 1e-3, log: true}}"
)
HELD = "refit.hold_out=0.05"
LAST = "refit.average=false"
REFITS = {
    "refit": (),
    "refit, 8 seeds": ("refit.n_seeds=8",),
    "refit, 5 % held out": (HELD,),
    "refit, 8 seeds, 5 % held out": ("refit.n_seeds=8", HELD),
    "refit, last weights": (LAST,),
    "refit, 8 seeds, last weights": ("refit.n_seeds=8", LAST),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="adult-train.csv, adult-test.csv")
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=10)
    asked = parser.parse_args()
    data = asked.data.absolute()
    test = pd.read_csv(data / "adult-test.csv")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(asked.studies):
            rows.append(study(Path(name), data, test, seed, asked.trials, asked.epochs))
            say(f"study {seed}: " + ", ".join(f"{k} {v:.5f}" for k, v in rows[-1].items()))
    say("\n| | test log-loss, mean | against the trial, mean | in how many studies better |")
    say("|---|---|---|---|")
    for kind in rows[0]:
        gains = [1 - row[kind] / row["best trial"] for row in rows]
        mean = statistics.mean(row[kind] for row in rows)
        n_better = sum(gain > 0 for gain in gains)
        say(f"| {kind} | {mean:.5f} | {100 * statistics.mean(gains):+.2f} % | {n_better} |")


def study(
    folder: Path, data: Path, test: pd.DataFrame, seed: int, n_trials: int, n_epochs: int
) -> dict[str, float]:
    """Test log-loss of the best trial, and of each refit of it."""
    name = f"adult-{seed}"
    table, tests = data / "adult-train.csv", data / "adult-test.csv"
    run(
        folder,
        *("data=csv", f"data.path={table}", f"data.test_path={tests}", f"data.target={TARGET}"),
        *(
            f"study.name={name}",
            f"study.seed={seed}",
            f"study.n_trials={n_trials}",
            "model=mlp",
            SPACE,
        ),
        *(f"training.epochs={n_epochs}", "devices=host"),
    )
    best = automl.open_study(name, dir=str(folder / "studies")).best
    found = {"best trial": log_loss(best.path, test)}
    for kind, words in REFITS.items():
        run(folder, "refit", f"study.name={name}", *words)
        found[kind] = log_loss(folder / "studies" / name / "refit.pt", test)
    return found


def log_loss(path: Path, test: pd.DataFrame) -> float:
    model = automl.load(path)
    p = model.predict_probabilities(test)
    truth = test[TARGET].astype(str).str.strip().str.rstrip(".")
    places = np.array([model.classes.index(label) for label in truth])
    return float(-np.log(p[np.arange(len(p)), places]).mean())


def run(folder: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "automl", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
