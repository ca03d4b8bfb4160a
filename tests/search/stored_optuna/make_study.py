"""Makes the studies of this folder by whichever Optuna is installed: `make_study.py sqlite FILE`.

`optuna-2.10.1.sql` is the dump of such an SQLite file by Optuna 2.10.1, `optuna-3.1.1.log` a
journal by Optuna 3.1.1. They are never made again.
"""

from __future__ import annotations

import sys
from typing import Any

import optuna


def open_storage(kind: str, file: str) -> Any:
    if kind == "sqlite":
        return f"sqlite:///{file}"
    storages: Any = optuna.storages
    journal = getattr(storages, "journal", storages)
    backend = getattr(journal, "JournalFileBackend", None) or storages.JournalFileStorage
    return storages.JournalStorage(backend(file))


def objective(trial: Any) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    depth = trial.suggest_int("depth", 2, 8)
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    if optimizer == "sgd":
        trial.suggest_float("momentum", 0.0, 0.9, step=0.1)
    trial.set_user_attr("host", f"node-{trial.number % 2}")
    if trial.number == 7:
        raise RuntimeError("no room")
    value = 0.0
    for step in range(5):
        value = 1.0 / (step + 1) + depth * 0.01 + lr
        trial.report(value, step)
        if trial.number == 4 and step == 2:
            raise optuna.TrialPruned
    return value


def two_values(trial: Any) -> tuple[float, float]:
    x = trial.suggest_float("x", -1, 1)
    return x * x, x


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = open_storage(*sys.argv[1:])
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(study_name="prices", storage=storage, sampler=sampler)
    study.optimize(objective, n_trials=12, catch=(RuntimeError,))
    study.enqueue_trial({"lr": 0.01, "depth": 3})
    study.ask()  # takes the enqueued trial, which never ends
    study.enqueue_trial({"lr": 0.02})
    front = optuna.create_study(
        study_name="front", storage=storage, directions=["minimize", "maximize"], sampler=sampler
    )
    front.optimize(two_values, n_trials=6)


main()
