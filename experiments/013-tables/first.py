"""How soon `model=auto` has its first model, and is at the level of the best default: from the
start of the command, imports included, to the writing of the first `best.pt` at all, and of the
first, by the value of its trial the best so far, whose loss on test rows is no higher. The default
runs in a process of its own."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import tables
from peers import OURS, Key, command, losses_of, read
from whole_process import fresh_folder, run

import automl
from automl.record.studies import read_study
from automl.record.study_files import BEST_CHECKPOINT_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder of what defaults.py wrote")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", required=True)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("overrides", nargs="*", help="settings, such as model.families=[boosting]")
    asked = parser.parse_intermixed_args()
    heads = ("table", "best default", "its loss", "its seconds, CPU", "first model: seconds, CPU")
    rows(*heads, "ours", "by", "seconds, CPU")
    rows(*["---"] * 8)
    for name in asked.tables:
        split = next(tables.splits(tables.table(name, asked.data), [0]))
        tool, its_loss = best_default(asked.results, name)
        its = timed_default(split, tool)
        ours = first_at_level(split, its_loss, asked.trials, asked.overrides)
        rows(name, tool, f"{its_loss:.4g}", its, *ours)


def best_default(folder: Path, table: str) -> tuple[str, float]:
    losses = {
        r.key.tool: r.loss
        for r in read(folder)
        if (r.key.table, r.key.split) == (table, 0) and r.loss is not None
    }
    tool = min(losses, key=lambda name: losses[name])
    return tool, losses[tool]


def timed_default(split: tables.Split, tool: str) -> str:
    with fresh_folder(None) as folder:
        write(split, folder)
        words = command(Key(split.table, 0, tool, 0), split, folder, time.time(), ())
        timing = run([sys.executable, *words[1:]], folder)
    return f"{timing.wall_seconds:.1f}, {timing.cpu_seconds:.1f}"


def write(split: tables.Split, folder: Path) -> None:
    split.train.to_csv(folder / "train.csv", index=False)
    split.test.drop(columns=tables.TARGET).to_csv(folder / "test.csv", index=False)


def first_at_level(
    split: tables.Split, level: float, n_trials: int, overrides: list[str]
) -> tuple[str, str, str, str]:
    """Return the seconds of the first model of all, and the loss of the first at the level, what it
    is, and its seconds."""
    with fresh_folder(None) as folder:
        write(split, folder)
        words = [
            *(sys.executable, "-m", "automl", "data=csv", "data.path=train.csv"),
            *(f"data.target={tables.TARGET}", "study.name=first", f"data.task={split.task}"),
            *(f"study.n_trials={n_trials}", "study.finish=[ensemble,refit]", *overrides),
        ]
        with sampled() as samples:
            timing = run(words, folder, variables=OURS)
        study = folder / "studies" / "first"
        found = []
        for trial in read_study(study).trials.values():
            path = study / "checkpoints" / f"trial-{trial.number:05d}" / BEST_CHECKPOINT_FILE
            if path.exists() and trial.value is not None:
                label = f"trial {trial.number}, {trial.params['family']}"
                found.append((path.stat().st_mtime, trial.value, label, path))
        ensemble = study / "ensemble.pt"
        found.append((ensemble.stat().st_mtime, -np.inf, "ensemble", ensemble))
        best, found = np.inf, sorted(found, key=lambda each: each[0])
        for place, (_, value, _, path) in enumerate(found):
            if value < best:
                best, loss, first = value, test_loss(split, path), place
                if loss <= level:
                    break
        written, _, label, _ = found[first]
        cpu = np.interp([found[0][0], written], *np.transpose(samples))
        behind = " (not at the level)" * (loss > level)
        wall = [at - timing.began_seconds for at in (found[0][0], written)]
        begun, ended = (f"{s:.1f}, {c:.1f}" for s, c in zip(wall, cpu, strict=True))
        return begun, f"{loss:.4g}{behind}", label, ended


def test_loss(split: tables.Split, path: Path) -> float:
    model = automl.load(path)
    if split.task == tables.AMOUNTS:
        return float(losses_of(split, np.asarray(model.predict(split.test)), ())[0].mean() ** 0.5)
    said = np.asarray(model.predict_probabilities(split.test))
    return float(losses_of(split, said, [str(name) for name in model.classes])[0].mean())


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


def rows(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
