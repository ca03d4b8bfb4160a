"""How fast the ensemble of a default study of Adult predicts, by how many of its members, and what
fewer cost; and its refit. See speed.md."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import automl
from automl.cli import main as command
from automl.models.predictor import Predictor, load_table_model

N_TIMES = 3
N_ROWS = 50_000
TARGET = "income"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("overrides", nargs="*", help="settings, such as data.folds=5")
    asked = parser.parse_args()
    train, test = (pd.read_csv(asked.data / f"adult-{part}.csv") for part in ("train", "test"))
    rows = pd.concat([test] * (1 + N_ROWS // len(test)), ignore_index=True)[:N_ROWS]
    lines = ["| model | rows/s | rows per s of CPU | log-loss | error | bytes |"]
    lines.append("|" + "---|" * 6)
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        study = automl.fit(train, TARGET, n_trials=asked.trials, overrides=asked.overrides)
        for name, model in models(study.path):
            rate, of_cpu = speed(model, rows)
            scores = model.score(test)
            size = f"{model.path.stat().st_size:,}" if "of its" not in name else ""
            cells = [name, f"{rate:,.0f}", f"{of_cpu:,.0f}"]
            cells += [f"{scores['loss']:.4f}", f"{scores['error']:.4f}", size]
            lines.append(f"| {' | '.join(cells)} |")
            sys.stderr.write(f"{lines[-1]}\n")
        os.chdir(home)
    sys.stdout.write("\n".join(lines) + "\n")


def models(path: Path) -> Iterator[tuple[str, Predictor]]:
    """The ensemble, and by fewer and fewer of its members; then its refit."""
    ensemble = load_table_model(path / "ensemble.pt")
    n = len(ensemble.params)
    yield f"ensemble of {n}", ensemble
    for few in range(n - 1, 0, -1):
        yield f"{few} of its {n} (members={few})", ensemble.of_heaviest(few)
    if command(("refit", f"study.name={path.name}", f"study.dir={path.parent}")):
        sys.exit("the refit has failed")
    yield "its refit", load_table_model(path / "refit.pt")


def speed(model: Predictor, rows: pd.DataFrame) -> tuple[float, float]:
    """Rows per second, and per second of CPU; by the median of several calls, after one that is not
    counted."""
    model.predict_probabilities(rows[:1000])
    seconds, cpu_seconds = [], []
    for _ in range(N_TIMES):
        began, cpu = time.perf_counter(), time.process_time()
        model.predict_probabilities(rows)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu)
    return len(rows) / statistics.median(seconds), len(rows) / statistics.median(cpu_seconds)


if __name__ == "__main__":
    main()
