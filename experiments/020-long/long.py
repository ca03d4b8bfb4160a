"""What a trial takes of a core against what is said of it beforehand. See README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from automl.config import Config, DataConfig, DataKind, ObjectiveConfig, StudyConfig, TrainingConfig
from automl.data.load import load_dataset
from automl.models.family import load_families
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import open_session
from automl.running.prepare.long_training import seconds_by_family
from automl.trial import LOCAL_HOST, DeviceShare, Params, Placement, TrialSpec, Verdict

SHAPES = ((300, 10_000), (2_000, 1_000), (100_000, 10), (1_000_000, 10))
PARAMS: dict[str, Params] = {
    "linear": {},
    "boosting": {},
    "trees": {},
    "mlp": {"depth": 2, "width": 64, "batch_size": 32},
}
EPOCHS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2, help="of 20; times are as of all")
    parser.add_argument("--families", nargs="*", default=list(PARAMS))
    asked = parser.parse_args()
    titles = ("rows", "columns", "family", "said, s", "seen, s of CPU")
    sys.stdout.write(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n")
    with tempfile.TemporaryDirectory() as folder:
        for n_rows, n_columns in SHAPES:
            path = table(Path(folder), n_rows, n_columns)
            for name in asked.families:
                said, seen = measured(Path(folder), path, name, asked.epochs)
                words = (f"{n_rows:,}", f"{n_columns:,}", name, said, f"{seen:.1f}")
                sys.stdout.write(f"| {' | '.join(words)} |\n")
                sys.stdout.flush()


def table(folder: Path, n_rows: int, n_columns: int) -> Path:
    """Numbers, of which three tell two classes apart, mostly."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, n_columns)).astype(np.float32).round(3)
    y = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=n_rows) > 0
    path = folder / f"{n_rows}-{n_columns}.csv"
    pd.DataFrame(x, columns=[f"c{i}" for i in range(n_columns)]).assign(y=y).to_csv(
        path, index=False
    )
    return path


def measured(folder: Path, path: Path, name: str, epochs: int) -> tuple[str, float]:
    """What is said of one model, and what `epochs` of them took, as of all."""
    data = DataConfig(DataKind.csv, path=str(path), target="y", folds=1, test=0.0)
    training, family = TrainingConfig(epochs=EPOCHS), load_families()[name]()
    dataset = load_dataset(data)
    ends = {key: (value,) for key, value in PARAMS[name].items()}
    config = Config(model=family, training=training)
    said = seconds_by_family(config, dataset, ends)[name]
    plan = TrainingPlan(
        ObjectiveConfig(),
        data,
        family,
        replace(training, epochs=epochs),
        StudyConfig().metric,
        StudyConfig().decided_direction,
    )
    session = open_session(SessionSetup(plan, dataset))
    spec = TrialSpec(0, PARAMS[name], str(folder / f"{path.stem}-{name}"), 0)
    begun = time.process_time()
    session.run(spec, Placement((DeviceShare(LOCAL_HOST, "cpu", 0),)), lambda _: Verdict.GO_ON)
    return "" if said is None else f"{said:.1f}", (time.process_time() - begun) * EPOCHS / epochs


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
