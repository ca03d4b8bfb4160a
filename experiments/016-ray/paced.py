"""Objectives that report at a pace, and keep what that took them (`agent_reports.py`)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

    from automl import TrialContext

EPOCH_SECONDS = 0.004
FOLDER = "PACED_FOLDER"


def report(trial: TrialContext) -> None:
    """`n` epochs, of which each `every`th is reported."""
    cpu, every = 0.0, trial.params["every"]
    for step in range(trial.params["n"]):
        time.sleep(EPOCH_SECONDS)
        if step % every:
            continue
        cpu -= time.thread_time()
        trial.report(step, {"val_loss": 1.0 + step})
        cpu += time.thread_time()
    _keep(trial.number, {"cpu_seconds": cpu * every / trial.params["n"]})


def ask(trial: optuna.Trial) -> float:
    """`n` reports, each with its question, which waits for the sweep's verdict at a rung."""
    seconds = []
    for step in range(trial.suggest_int("n", 1, 10**6)):
        time.sleep(EPOCH_SECONDS)
        begun = time.perf_counter()
        trial.report(1.0 + step, step)
        assert not trial.should_prune()
        seconds.append(time.perf_counter() - begun)
    _keep(trial.number, {"seconds": seconds})
    return 0.0


def _keep(number: int, found: object) -> None:
    Path(os.environ[FOLDER], str(number)).write_text(json.dumps(found))
