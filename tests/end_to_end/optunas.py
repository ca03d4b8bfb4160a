"""An objective as one writes it for Optuna; it leaves word in the folder that the sweep runs in."""

from __future__ import annotations

import json
import time
from pathlib import Path

import optuna


def objective(trial: optuna.Trial) -> float:
    """Each trial is worse than those before; the second one hangs while nobody has `killed` it."""
    n = trial.suggest_int("n", 1, 3)
    trial.suggest_int("b", 0, n)
    trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    with Path(f"given-{trial.number}").open("a") as given:
        given.write(json.dumps(trial.params) + "\n")
    if trial.number == 1 and not Path("killed").exists():
        Path("hangs").touch()
        time.sleep(3600)
    if n > 1:
        trial.suggest_categorical("kind", ["sgd", "adam"])
    trial.set_user_attr("by", f"objective {trial.number}")
    for step in range(4):
        trial.report(float(trial.number), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(trial.number)
