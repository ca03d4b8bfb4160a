"""How soon `model=auto` has a good model of Adult on disk: from the start of the command, imports
included, to the last writing of each trial's `best.pt`, and what that file is worth."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
from peers import OURS
from whole_process import fresh_folder, run

from automl.models.predictor import load_table_model
from automl.record.studies import read_study
from automl.record.study_files import BEST_CHECKPOINT_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public tables")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("overrides", nargs="*", help="settings, such as model.families=[boosting]")
    asked = parser.parse_args()
    data, test = asked.data.resolve(), pd.read_csv(asked.data / "adult-test.csv")
    command = [
        *(sys.executable, "-m", "automl", "data=csv", f"data.path={data}/adult-train.csv"),
        *("data.target=income", "data.test_fraction=0", "model=auto", "study.name=first"),
        *(f"study.n_trials={asked.trials}", *asked.overrides),
    ]
    with fresh_folder(None) as folder:
        with sampled() as samples:
            timing = run(command, folder, variables=OURS)
        study = folder / "studies" / "first"
        for trial in read_study(study).trials.values():
            path = study / "checkpoints" / f"trial-{trial.number:05d}" / BEST_CHECKPOINT_FILE
            if path.exists():
                scores, written = load_table_model(path).score(test), path.stat().st_mtime
                cpu_seconds = np.interp(written, *np.transpose(samples))
                say(
                    f"trial {trial.number} ({trial.params['family']}): written after "
                    f"{written - timing.began_seconds:.1f} s, {cpu_seconds:.1f} s of CPU; error "
                    f"{scores['error']:.2%}, log-loss {scores['loss']:.4f}"
                )
    say(
        f"the command took {timing.wall_seconds:.1f} s, {timing.cpu_seconds:.1f} s of CPU; "
        f"others kept {timing.others_cores:.1f} cores busy"
    )


@contextmanager
def sampled() -> Iterator[list[tuple[float, float]]]:
    """Unix times, and the CPU seconds that all descendants had spent by then."""
    samples: list[tuple[float, float]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.2):
            samples.append((time.time(), spent_seconds()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def spent_seconds() -> float:
    """Of those that run, and of those of theirs that have ended."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended just now, and is counted by its parent next time
            total += sum(process.cpu_times()[:4])
    return total


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
