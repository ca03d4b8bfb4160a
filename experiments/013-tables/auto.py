"""`automl.fit` on real tables: test loss of the ensemble, the best trial and the best default, and
what it took. See auto.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sklearn.model_selection import train_test_split

import automl
from automl.api.fit_call import FittedStudy
from automl.models.predictor import load_table_model

ONE_FAMILY = ("linear", "boosting", "trees", "mlp")


@dataclass(frozen=True)
class Table:
    """Rows to learn from and rows to score on."""

    name: str
    target: str
    train: pd.DataFrame
    test: pd.DataFrame
    metrics: tuple[str, ...]
    task: str


def tables(folder: Path, only: str) -> Iterator[Table]:
    """Adult as it is split; wine and horse-colic 75/25, the latter by three seeds."""
    if only in ("", "adult"):
        train, test = (pd.read_csv(folder / f"adult-{part}.csv") for part in ("train", "test"))
        yield Table("Adult", "income", train, test, ("loss", "error"), "classification")
    if only in ("", "wine"):
        wine = pd.read_csv(folder / "winequality-white.csv").astype({"quality": float})
        train, test = train_test_split(wine, test_size=0.25, random_state=0)
        yield Table("wine", "quality", train, test, ("rmse",), "regression")
    if only in ("", "horse"):
        horse = pd.read_csv(folder / "horse-colic.csv", na_values="?").dropna(subset="outcome")
        horse["outcome"] = horse.outcome.astype(int)
        for seed in range(3):
            train, test = train_test_split(
                horse, test_size=0.25, random_state=seed, stratify=horse.outcome
            )
            yield Table(
                f"horse-colic, seed {seed}",
                "outcome",
                train,
                test,
                ("loss", "error"),
                "classification",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", default="", help="adult, wine or horse")
    parser.add_argument("overrides", nargs="*", help="settings, such as data.folds=auto")
    asked = parser.parse_args()
    folder = asked.data.resolve()
    lines = [
        f"| table | seconds | ensemble | members | best trial | {' | '.join(ONE_FAMILY)} |",
        "|" + "---|" * (5 + len(ONE_FAMILY)),
    ]
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for table in tables(folder, asked.only):
            lines.append(row(table, asked.trials, asked.overrides))
            sys.stderr.write(f"{lines[-1]}\n")
        os.chdir(folder)
    sys.stdout.write("\n".join(lines) + "\n")


def row(table: Table, n_trials: int, overrides: list[str]) -> str:
    """What a study of the table came to; of each family its best trial."""
    began = time.perf_counter()
    study = automl.fit(
        table.train,
        table.target,
        n_trials=n_trials,
        overrides=[f"data.task={table.task}", *overrides],
    )
    took = time.perf_counter() - began
    board = study.leaderboard().dropna(subset="family")  # the trials
    best = {family: int(of.index[0]) for family, of in board.groupby("family", sort=False)}
    families = [scored(study, best.get(name), table) for name in ONE_FAMILY]
    cells = [
        *(table.name, f"{took:.0f}"),
        shown(study.model.score(table.test), table),
        str(int((board.weight > 0).sum())),
        scored(study, int(board.index[0]), table),
        *families,
    ]
    return f"| {' | '.join(cells)} |"


def scored(study: FittedStudy, trial: int | None, table: Table) -> str:
    if trial is None:
        return ""
    path = study.path / "checkpoints" / f"trial-{trial:05d}" / "best.pt"
    return shown(load_table_model(path).score(table.test), table)


def shown(scores: dict[str, float], table: Table) -> str:
    return ", ".join(f"{scores[name]:.4f}" for name in table.metrics)


if __name__ == "__main__":
    main()
