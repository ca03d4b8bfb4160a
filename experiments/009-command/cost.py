"""What a trial of objective=command costs beside its program: see README.md."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from automl.record.event_log import read_events
from automl.trial import FinishedOutcome

PROGRAM = ("/bin/sh", "-c", "echo val_loss: 0.5")
N_FEW = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=120)
    n_trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = sweep(folder, "few", N_FEW)
        many = sweep(folder, "many", n_trials)
        wall = between_trials(folder / "studies" / "many")
    own_wall, own_cpu = alone(n_trials)
    cpu = (many - few) / (n_trials - N_FEW)
    say("wall, from one trial's end to the next", wall, own_wall)
    say("CPU, of all processes", cpu, own_cpu)


def sweep(folder: Path, name: str, n_trials: int) -> float:
    """Run one; the CPU seconds of all its processes."""
    before = cpu_seconds()
    subprocess.run(
        [
            *(sys.executable, "-m", "automl", "objective=command"),
            f"objective.command={PROGRAM[0]} {PROGRAM[1]} '{PROGRAM[2]}'",
            *("space={lr: {low: 0.1, high: 0.2}}", f"study.name={name}"),
            *(f"study.n_trials={n_trials}", "sampler=random", "pruner=none", "devices.only=cpu"),
            "admission.max_concurrent_trials=1",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return cpu_seconds() - before


def between_trials(study: Path) -> float:
    """The median; the first trials, whose worker was started for them, are left out."""
    ends = [e.time for e, _ in read_events(study / "events.log") if isinstance(e, FinishedOutcome)]
    return statistics.median(after - before for before, after in pairwise(ends[N_FEW // 2 :]))


def alone(n: int) -> tuple[float, float]:
    """The program by itself: median wall and mean CPU seconds."""
    before, walls = cpu_seconds(), []
    for _ in range(n):
        begun = time.perf_counter()
        subprocess.run(PROGRAM, stdout=subprocess.PIPE, check=True)
        walls.append(time.perf_counter() - begun)
    return statistics.median(walls), (cpu_seconds() - before) / n


def cpu_seconds() -> float:
    """Of children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def say(what: str, with_trial: float, own: float) -> None:
    more = 1000 * (with_trial - own)
    text = f"{what}: {1000 * with_trial:.1f} ms, of the program {1000 * own:.1f}: {more:.1f} more"
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
