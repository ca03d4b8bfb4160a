"""The families of models with their default params on Adult: how good, how dear, how large.

Each trains alone, in this process with one thread, as a trial of a sweep does. The largest that a
space, and that the bounds of the params allow are trained too, for their files.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from automl.config import DataConfig, DataKind, ObjectiveConfig, TrainingConfig
from automl.data.scoring.evaluation import EvaluationRows, open_evaluation
from automl.data.scoring.metrics import make_predictions
from automl.models.family import load_families
from automl.models.predictor import load_table_model
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import TrainingSession, open_objective
from automl.record.study_files import BEST_CHECKPOINT_FILE, LAST_CHECKPOINT_FILE
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

TARGET = "income"
OTHER_KIND: Params = {"kind": "random_forest", "max_features": 0.3}
N_TRIALS = 50
"""Of the study whose size is told."""
RUNS: tuple[tuple[str, str, Params], ...] = (
    ("linear", "default", {}),
    ("trees", "default", {}),
    ("trees", "the other kind", OTHER_KIND),
    ("boosting", "default", {}),
    ("mlp", "default", {}),
    (
        *("trees", "largest of space=trees"),
        {"kind": "extra_trees", "min_samples_leaf": 1, "max_features": 0.1},
    ),
    (
        *("boosting", "largest of space=boosting"),
        {"learning_rate": 0.01, "max_leaf_nodes": 128, "min_samples_leaf": 5},
    ),
)


@dataclass(frozen=True)
class Row:
    """What is told of one training."""

    loss: float
    error: float
    cpu_seconds: float
    best_bytes: int
    last_bytes: int
    rows_per_second: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with adult-train.csv, adult-test.csv")
    folder = Path(parser.parse_args().data)
    say(
        " | ".join(
            ["family", "params", "log-loss", "error", "CPU s", "best.pt", "last.pt", "rows/s"]
        )
    )
    rows = []
    for name, what, params in RUNS:
        row = measured(folder, name, params)
        say(
            f"{name} | {what} | {row.loss:.4f} | {row.error:.2%} | {row.cpu_seconds:.2f} | "
            f"{row.best_bytes:,} | {row.last_bytes:,} | {row.rows_per_second:,.0f}"
        )
        rows.append(row)
    # Each file lies in the study and, as an artifact, in MLflow.
    largest = max(2 * (row.best_bytes + row.last_bytes) for row in rows)
    say(
        f"{N_TRIALS} trials of the largest of these, MLflow's copies included: "
        f"{N_TRIALS * largest / 1e6:,.0f} MB"
    )


def measured(folder: Path, name: str, params: Params) -> Row:
    """Trained on the training and judged on the validation part of the one table, scored on the
    other."""
    config = DataConfig(
        kind=DataKind.csv,
        path=str(folder / "adult-train.csv"),
        target=TARGET,
        test=str(folder / "adult-test.csv"),
    )
    evaluation = open_evaluation(config, config.test)
    family = OneFamily(name, config, evaluation)
    with tempfile.TemporaryDirectory() as checkpoints:
        family.train({}, checkpoints)  # what is imported first
        _, cpu_seconds = family.train(params, f"{checkpoints}/1")
        sizes = [
            Path(checkpoints, "1", file).stat().st_size
            for file in (BEST_CHECKPOINT_FILE, LAST_CHECKPOINT_FILE)
        ]
        loss, error, rows_per_second = scored(
            Path(checkpoints, "1", BEST_CHECKPOINT_FILE), evaluation
        )
    return Row(loss, error, cpu_seconds, sizes[0], sizes[1], rows_per_second)


class OneFamily:
    """Trains trials of a family on one table, in this process."""

    def __init__(
        self,
        name: str,
        config: DataConfig,
        evaluation: EvaluationRows,
        *,
        own_length: bool = False,
        metric: str = "val_loss",
        loss: str = "auto",
    ) -> None:
        family, training = load_families()[name](), TrainingConfig(loss=loss)
        plan = TrainingPlan(
            objective=ObjectiveConfig(),
            data=config,
            family=family,
            training=family.with_length(training) if own_length else training,
            metric=metric,
            direction=Direction.minimize,
        )
        objective = open_objective(SessionSetup(plan, evaluation.dataset))
        self._session = TrainingSession(plan, objective)

    def train(self, params: Params, folder: str) -> tuple[float, float]:
        """Its value, and the seconds of CPU that it took; `best.pt` lies in the folder then."""
        told: list[TrialEvent] = []

        def on_event(event: TrialEvent) -> Verdict:
            told.append(event)
            return Verdict.GO_ON

        before = time.process_time()
        self._session.run(TrialSpec(0, params, folder, 1), PLACEMENT, on_event)
        outcome = told[-1]
        assert isinstance(outcome, FinishedOutcome), outcome
        return outcome.value, time.process_time() - before


def scored(path: Path, evaluation: EvaluationRows) -> tuple[float, float, float]:
    """Log-loss and error on the test rows, and how many of them are predicted in a second. Of
    amounts the mean squared error and nan."""
    model, part = load_table_model(path), evaluation.part
    model.outputs(part.rows[:1])
    before = time.process_time()
    outputs = model.outputs(part.rows)
    seconds = time.process_time() - before
    data = evaluation.dataset
    of = make_predictions(data.task, outputs, part.y, data.target_mean, data.target_scale).scored()
    return of["loss"], of.get("error", math.nan), len(part) / seconds


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


PLACEMENT = Placement((DeviceShare(LOCAL_HOST, CPU_LABEL, 0),))


if __name__ == "__main__":
    main()
