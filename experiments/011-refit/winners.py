"""What a study came to against its refits, on rows that neither saw: see README.md."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import automl

TARGET = "income"
SPACE = (
    "space={depth: {low: 1, high: 2}, width: {choices: [32, 64]}, batch_size: 256, "
    "lr: {low: 1e-3, high: 1e-1, log: true}, weight_decay: {low: 1e-6, high: 1e-3, log: true}}"
)
HELD = "hold_out=0.05"


@dataclass(frozen=True)
class Kind:
    """What is searched and trained again, by `--model`."""

    words: tuple[str, ...]
    """Of the sweep."""
    winner: str
    """What the study came to, which is refitted: `best trial` or `ensemble`."""
    refits: Mapping[str, tuple[str, ...]]


KINDS = {
    "mlp": Kind(
        ("model=mlp", SPACE),
        "best trial",
        {
            "refit": (),
            "refit, 8 seeds": ("seeds=8",),
            "refit, 5 % held out": (HELD,),
            "refit, 8 seeds, 5 % held out": ("seeds=8", HELD),
        },
    ),
    "auto": Kind(
        ("model=auto", "study.finish=[ensemble,plots]"),
        "ensemble",
        {"refit": (), "refit of the best trial": ("which=best",)},
    ),
}
KINDS["networks"] = replace(KINDS["auto"], words=(*KINDS["auto"].words, "model.families=[mlp]"))
UNCHECKED = ("check=false",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="adult-train.csv, adult-test.csv")
    parser.add_argument("--model", choices=KINDS, default="mlp")
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=10, help="of a network by itself")
    parser.add_argument("--part", type=float, help="of the rows that trials train on")
    asked = parser.parse_args()
    data, kind = asked.data.absolute(), KINDS[asked.model]
    if asked.part is not None:
        kind = of_a_part(kind, asked.part)
    words = [f"study.n_trials={asked.trials}", *kind.words]
    if asked.model == "mlp":
        words.append(f"training.epochs={asked.epochs}")
    test = pd.read_csv(data / "adult-test.csv")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for seed in range(asked.studies):
            own = [*words, f"study.seed={seed}"]
            rows.append(study(Path(name), data, test, f"adult-{seed}", own, kind))
            say(f"study {seed}: " + ", ".join(f"{k} {v:.5f}" for k, v in rows[-1].items()))
    say(f"\n| | test log-loss, mean | against the {kind.winner}, mean | in how many better |")
    say("|---|---|---|---|")
    for again in rows[0]:
        gains = [1 - row[again] / row[kind.winner] for row in rows]
        mean = statistics.mean(row[again] for row in rows)
        n_better = sum(gain > 0 for gain in gains)
        say(f"| {again} | {mean:.5f} | {100 * statistics.mean(gains):+.2f} % | {n_better} |")


def of_a_part(kind: Kind, part: float) -> Kind:
    """Its refit with the params that were tried again on all rows, and with those of the search."""
    refit = kind.refits["refit"]
    again = {"refit": refit, "refit, unchecked": (*refit, *UNCHECKED)}
    return replace(kind, words=(*kind.words, f"data.sweep_rows={part}"), refits=again)


def study(
    folder: Path, data: Path, test: pd.DataFrame, name: str, words: list[str], kind: Kind
) -> dict[str, float]:
    """Test log-loss of what the study came to, and of each refit of it."""
    table, tests = data / "adult-train.csv", data / "adult-test.csv"
    run(
        folder,
        *("data=csv", f"data.path={table}", f"data.test={tests}", f"data.target={TARGET}"),
        *(f"study.name={name}", "devices.only=cpu", *words),
    )
    own = folder / "studies" / name
    best = automl.open_study(name, dir=str(folder / "studies")).best
    assert best.path is not None, "the best trial has left its model"
    found = {"best trial": log_loss(best.path, test)}
    if kind.winner == "ensemble":
        found["ensemble"] = log_loss(own / "ensemble.pt", test)
    for again, settings in kind.refits.items():
        run(folder, "refit", f"study.name={name}", *settings)
        found[again] = log_loss(own / "refit.pt", test)
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
