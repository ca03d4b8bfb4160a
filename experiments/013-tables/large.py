"""How good a model is after a given time on tables of 10,000 to some million rows.

    .venv/bin/python experiments/013-tables/large.py --data DIR --rows 1000000 --seconds 60 240

For each table of `large_table.py` it runs LightGBM with its defaults once, and `model=auto`, FLAML
and AutoGluon's medium quality with each time limit, each in a process of its own (`--tools` chooses
some; `make bench-peers` installs the last two). It prints a row for each: the log-loss and the
error on 100,000 other rows, and the wall seconds from the start of the process to its end, imports,
reading and predicting the other rows included, the latter not of `model=auto`. `load` is the
machine's before the run: other processes make all of them slower. `--ours` gives further settings
of the sweep.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from large_table import make_tables

SCORE = """
import json, sys, time
began = time.monotonic()
import numpy as np, pandas as pd
frame = pd.read_csv(sys.argv[2])
def show(probabilities, classes):
    places = pd.Index(classes).get_indexer(frame.y)
    own = probabilities[np.arange(len(frame)), places]
    error = (probabilities.argmax(1) != places).mean()
    print(json.dumps({"loss": -np.log(own.clip(1e-7)).mean(), "error": error}))
"""
LIGHTGBM = (
    SCORE
    + """
import lightgbm
train = pd.read_csv(sys.argv[1])
kinds = {n: pd.CategoricalDtype(sorted(train[n].unique())) for n in ("town", "shop")}
model = lightgbm.LGBMClassifier(verbosity=-1).fit(train.drop(columns="y").astype(kinds), train.y)
show(model.predict_proba(frame.drop(columns="y").astype(kinds)), model.classes_)
"""
)
FLAML = (
    SCORE
    + """
from flaml import AutoML
train = pd.read_csv(sys.argv[1])
kinds = {n: pd.CategoricalDtype(sorted(train[n].unique())) for n in ("town", "shop")}
model = AutoML()
model.fit(
    X_train=train.drop(columns="y").astype(kinds), y_train=train.y, task="classification",
    metric="log_loss", time_budget=max(1, float(sys.argv[3]) - (time.monotonic() - began)),
    retrain_full="budget", log_file_name="", verbose=0, seed=0,
)
show(model.predict_proba(frame.drop(columns="y").astype(kinds)), model.classes_)
"""
)
AUTOGLUON = (
    SCORE
    + """
import tempfile
from autogluon.tabular import TabularPredictor
train = pd.read_csv(sys.argv[1])
model = TabularPredictor("y", eval_metric="log_loss", path=tempfile.mkdtemp(), verbosity=0).fit(
    train, presets="medium_quality", num_gpus=0,
    time_limit=max(1, float(sys.argv[3]) - (time.monotonic() - began)),
)
show(model.predict_proba(frame.drop(columns="y")).to_numpy(), model.class_labels)
"""
)
OURS = (
    SCORE
    + """
import automl
model = automl.load(sys.argv[1])
show(model.predict_probabilities(frame.drop(columns="y")), model.classes)
"""
)

ROOT = Path(__file__).resolve().parents[2]
PEERS = {
    "flaml": (ROOT / ".venv-peers-tables" / "bin" / "python", FLAML),
    "autogluon-medium": (ROOT / ".venv-peers-autogluon" / "bin" / "python", AUTOGLUON),
}


def run(words: Sequence[str], folder: Path) -> tuple[str, float]:
    """Return what a program prints, and its wall seconds. Raises CalledProcessError."""
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout, time.monotonic() - began


def row(name: str, n_rows: int, limit: str, printed: str, seconds: float, load: float) -> None:
    scores = json.loads(printed.splitlines()[-1])
    cells = (name, f"{n_rows:,}", limit, f"{scores['loss']:.4f}", f"{scores['error']:.2%}")
    sys.stdout.write(f"| {' | '.join((*cells, f'{seconds:.0f}', f'{load:.0f}'))} |\n")
    sys.stdout.flush()


def measure_ours(n_rows: int, limit: int, paths: Sequence[Path], settings: Sequence[str]) -> None:
    load, folder = os.getloadavg()[0], Path(tempfile.mkdtemp())
    words = (f"table={paths[0]}", "target=y", f"timeout={limit}", "name=large", "tracking.uri=none")
    _, seconds = run((sys.executable, "-m", "automl", *words, *settings), folder)
    printed, _ = run((sys.executable, "-c", OURS, "studies/large", str(paths[1])), folder)
    row("model=auto", n_rows, str(limit), printed, seconds, load)
    shutil.rmtree(folder)


def measure_peer(tool: str, n_rows: int, limit: int, paths: Sequence[Path]) -> None:
    load, (python, script) = os.getloadavg()[0], PEERS[tool]
    words = (str(python), "-c", script, *map(str, paths), str(limit))
    printed, seconds = run(words, paths[0].parent)
    row(tool, n_rows, str(limit), printed, seconds, load)


def measure_lightgbm(n_rows: int, paths: Sequence[Path]) -> None:
    load = os.getloadavg()[0]
    printed, seconds = run((sys.executable, "-c", LIGHTGBM, *map(str, paths)), paths[0].parent)
    row("LightGBM", n_rows, "", printed, seconds, load)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--seconds", type=int, nargs="+", required=True)
    parser.add_argument("--tools", nargs="+", default=["lightgbm", "automl", *PEERS])
    parser.add_argument("--ours", nargs="*", default=[])
    asked = parser.parse_args()
    sys.stdout.write("| model | rows | limit, s | log-loss | error | wall, s | load |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for n_rows in asked.rows:
        paths = [path.resolve() for path in make_tables(asked.data, n_rows)]
        if "lightgbm" in asked.tools:
            measure_lightgbm(n_rows, paths)
        for limit in asked.seconds:
            if "automl" in asked.tools:
                measure_ours(n_rows, limit, paths, asked.ours)
            for tool in [name for name in PEERS if name in asked.tools]:
                measure_peer(tool, n_rows, limit, paths)


if __name__ == "__main__":
    main()
