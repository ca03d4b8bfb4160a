"""Five folds as a pack against one hold-out: CPU and test loss of the same params. See folds.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch

from automl.config import DataConfig, DataKind, ObjectiveConfig, Task, TrainingConfig
from automl.data.dataset import Dataset, DatasetPart
from automl.data.load import load_dataset_with_test
from automl.data.scoring.metrics import make_predictions
from automl.models.families.mlp.family import MLPFamily
from automl.models.predictor import load_table_model
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import open_session
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.trial import (
    CPU_LABEL,
    LOCAL_HOST,
    DeviceShare,
    Direction,
    FinishedOutcome,
    Params,
    Placement,
    TrialEvent,
    TrialSpec,
    Verdict,
)

PLACE = Placement((DeviceShare(LOCAL_HOST, CPU_LABEL, 0),))
COMMON: Params = {"optimizer": "adamw", "weight_decay": 0.1, "dropout": 0.2, "lr": 3e-3}
SOME: tuple[Params, ...] = (
    {**COMMON, "depth": 2, "width": 32, "batch_size": 64},
    {**COMMON, "depth": 2, "width": 64, "batch_size": 64},
    {**COMMON, "depth": 3, "width": 128, "batch_size": 64},
    {**COMMON, "depth": 2, "width": 256, "batch_size": 64},
)


@dataclass(frozen=True)
class Table:
    name: str
    config: DataConfig
    epochs: int


@dataclass(frozen=True)
class Ended:
    cpu_seconds: float
    value: float
    test: float
    """Log-loss, or RMSE in the target's unit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="folder of the tables")
    parser.add_argument("--only", default="adult,wine", help="adult, wine, or both")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for table in tables(asked.data):
        if table.name in asked.only.split(","):
            compare(table, range(asked.seeds))


def tables(folder: Path) -> Iterator[Table]:
    csv = DataKind.csv
    train, test = str(folder / "adult-train.csv"), str(folder / "adult-test.csv")
    yield Table("adult", DataConfig(csv, train, "income", test=test), epochs=10)
    wine = DataConfig(csv, str(folder / "winequality-white.csv"), "quality", test=0.25)
    yield Table("wine", replace(wine, task=Task.regression), epochs=40)


def compare(table: Table, seeds: range) -> None:
    """Print a line for each of some params."""
    say(f"{table.name}, {table.epochs} epochs, mean of {len(seeds)} seeds")
    say(
        "depth width batch   CPU s: one  folds  ratio   judged: one  folds   test: one  folds  gain"
    )
    ways = [
        load_dataset_with_test(replace(table.config, folds=k), table.config.test) for k in (1, 5)
    ]
    for params in SOME:
        one, folds = (
            [train(way.dataset, way.test, params, table.epochs, seed) for seed in seeds]
            for way in ways
        )
        cpu, value, test = (
            [fmean(getattr(ended, name) for ended in way) for way in (one, folds)]
            for name in ("cpu_seconds", "value", "test")
        )
        say(
            f"{params['depth']:5} {params['width']:5} {params['batch_size']:5}"
            f"{cpu[0]:13.1f} {cpu[1]:6.1f} {cpu[1] / cpu[0]:6.2f}"
            f"{value[0]:14.4f} {value[1]:6.4f}"
            f"{test[0]:12.4f} {test[1]:6.4f} {1 - test[1] / test[0]:+5.1%}"
        )


def train(data: Dataset, test: DatasetPart, params: Params, epochs: int, seed: int) -> Ended:
    """One trial, in this process."""
    plan = TrainingPlan(
        ObjectiveConfig(),
        DataConfig(),
        MLPFamily(),
        TrainingConfig(epochs=epochs),
        "val_loss",
        Direction.minimize,
        n_models=data.n_models,
    )
    events: list[TrialEvent] = []

    def on_event(event: TrialEvent) -> Verdict:
        events.append(event)
        return Verdict.GO_ON

    with tempfile.TemporaryDirectory() as folder:
        session = open_session(SessionSetup(plan, data))
        began = time.process_time()
        session.run(TrialSpec(0, params, folder, seed), PLACE, on_event)
        seconds = time.process_time() - began
        outcome = events[-1]
        if not isinstance(outcome, FinishedOutcome):
            sys.exit(f"the trial did not finish: {outcome}")
        model = load_table_model(Path(folder) / BEST_CHECKPOINT_FILE)
        outputs = model.outputs(test.rows)
    scores = make_predictions(data.task, outputs, test.y, *model.unit).scored()
    return Ended(seconds, outcome.value, scores["rmse" if "rmse" in scores else "loss"])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
