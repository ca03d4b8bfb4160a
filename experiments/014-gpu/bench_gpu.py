"""What a GPU gains a trained model, and several of them its last training; prints tables."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

HERE = Path(__file__).parent
N_COLUMNS = 200
SWEEP = (
    *("data=csv", "data.path=table.csv", "data.target=label", "model=mlp", "study.name=gpu"),
    *("study.n_trials=1", "training.epochs=3"),
    "space={depth: 3, width: 1024, lr: 0.001, batch_size: 1024}",
)


def make_table(n_rows: int) -> pd.DataFrame:
    """Columns of numbers, and which of ten sums of them is the largest."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    label = (numbers @ rng.normal(size=(N_COLUMNS, 10)).astype(np.float32)).argmax(1)
    frame = pd.DataFrame(numbers.round(3), columns=[f"n{i}" for i in range(N_COLUMNS)])
    return frame.assign(label=label)


def command(*words: str) -> float:
    """Runs it, its output shown; the seconds that it took, start included."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "automl", *words], check=True)
    return time.monotonic() - began


def refits() -> None:
    """One training by each way of several GPUs."""
    if torch.cuda.device_count() < 2:
        say("\nDDP and DataParallel: not measured, there is one GPU")
        return
    say("\n| one refit by | seconds of the command |")
    say("|---|---|")
    for parallel in ("none", "dataparallel", "ddp"):
        seconds = command("refit", "study.name=gpu", f"parallel={parallel}")
        say(f"| {parallel} | {seconds:.1f} |")


def say(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use: nothing is measured.")
    say(f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        given_path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parents[1]), given_path]))
        make_table(given.rows).to_csv("table.csv", index=False)
        command(*SWEEP)
        command("export", "study.name=gpu", "tune=true")
        refits()


if __name__ == "__main__":
    main()
