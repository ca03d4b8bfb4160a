"""Lets Optuna call each objective of `tests/faults/odd_objectives.py`, and a probe after it.

    python experiments/025-faults/odd.py [--limit 10]

Each kind has a process of its own, in which `study.optimize(catch=(Exception,))` has two trials:
the kind, then the probe. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import automl
from automl.execution.process_tree import adopt_orphans, kill_descendants
from tests.faults import odd_objectives as odd
from tests.faults.process_probe import METRIC, SEEN


class OptunaContext:
    """What the objectives see of their trial, by Optuna's own means."""

    def __init__(self, trial: optuna.Trial, number: int, folder: Path) -> None:
        self._trial, self.params, self.number = trial, {"n": number}, trial.number
        self.directory = folder / str(trial.number)
        self.directory.mkdir()
        self.best: Any = None

    def report(self, step: Any, metrics: Any, checkpoint: Any = None, best: Any = None) -> None:
        if METRIC in metrics:
            self._trial.report(metrics[METRIC], step)
            self.best = metrics[METRIC]
        if checkpoint is not None:
            torch.save(checkpoint(), self.directory / "last.pt")

    def set_tag(self, name: str, value: object) -> None:
        self._trial.set_user_attr(name, value)


def study_in(folder: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(folder / "optuna.log")))
    return optuna.create_study(storage=storage, study_name="odd", load_if_exists=True)


def run(folder: Path, numbers: list[int]) -> None:
    """Optimize with these values of the param, one trial after another."""
    study = study_in(folder)
    for number in numbers:
        study.enqueue_trial({"n": number})

    def train(trial: optuna.Trial) -> Any:
        number = trial.suggest_int("n", 0, 2 * len(odd.KINDS))
        context = OptunaContext(trial, number, folder)
        try:
            returned = odd.train(context)  # type: ignore[arg-type]
        except automl.TrialPruned as pruned:
            raise optuna.TrialPruned from pruned
        if isinstance(returned, dict):
            return returned[METRIC]
        return context.best if returned is None else returned

    study.optimize(train, n_trials=len(numbers), catch=(Exception,))


def in_child(folder: Path, numbers: list[int], limit_seconds: float) -> bool:
    """Run in a process of its own; return whether it ended by itself in time."""
    if (pid := os.fork()) == 0:
        os.setsid()
        os.chdir(gettempdir())  # the probes find the same one
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        try:
            run(folder, numbers)
        finally:
            os._exit(0)
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def seen(folder: Path, trial: int) -> dict[str, str]:
    path = folder / str(trial) / SEEN
    return dict(json.loads(path.read_text())) if path.exists() else {}


def judge(number: int, fresh: dict[str, str], limit_seconds: float) -> tuple[str, str]:
    """Return how the kind's trial stands in the storage, and how its probe went."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        has_ended = in_child(folder, [number, number + 1], limit_seconds)
        kill_descendants(os.getpid())
        state = study_in(folder).trials[0].state.name
        after = seen(folder, 1)
    if not after:
        return state, "no probe" if has_ended else "no probe, it hung"
    differs = [what for what in fresh if after[what] != fresh[what]]
    return state, f"another {differs[0]}" if differs else "bit-equal"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for a kind")
    limit_seconds = parser.parse_args().limit
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    adopt_orphans()
    with TemporaryDirectory() as name:
        in_child(Path(name), [1], 60.0)
        fresh = seen(Path(name), 0)
    states, probes = Counter[str](), Counter[str]()
    for place, kind in enumerate(odd.KINDS):
        state, probe = judge(2 * place, fresh, limit_seconds)
        states[state] += 1
        probes[probe.partition(" ")[0] if probe.startswith("another") else probe] += 1
        sys.stdout.write(f"{kind}: {state}, {probe}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{states.most_common()}\n{probes.most_common()}\n")


if __name__ == "__main__":
    main()
