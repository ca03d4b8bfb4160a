"""Objectives that do nothing but report, and keep how long that took (`reports.py`)."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import optuna

    from automl import TrialContext

FILE = "report_seconds.json"
CPU_FILE = "report_cpu_seconds.json"
"""The mean of the trial's own thread: other work on the machine does not count."""
_EPOCH_SECONDS = 0.004  # of a small network; the core is busy, as it is when something trains


def train_without_pause(trial: TrialContext) -> None:
    """`n` reports and nothing else; keeps when each was made."""
    begun, seconds = time.perf_counter(), []
    for step in range(trial.params["n"]):
        trial.report(step, {"val_loss": 1.0 + step}, checkpoint=partial(dict, epoch=step))
        seconds.append(time.perf_counter() - begun)
    Path(FILE).write_text(json.dumps(seconds))


def train_by_mlflow(trial: TrialContext) -> None:
    """`n` values logged by `mlflow.log_metric`, of the study's metric where `improving`."""
    import mlflow

    name = "val_loss" if trial.params["improving"] else "train_loss"
    seconds = []
    with mlflow.start_run():
        mlflow.log_metric("val_loss", 1.0)
        for step in range(1, trial.params["n"]):
            _train_for(_EPOCH_SECONDS)
            begun = time.perf_counter()
            mlflow.log_metric(name, 1.0 + step, step=step)
            seconds.append(time.perf_counter() - begun)
    Path(FILE).write_text(json.dumps(seconds))


def _train_for(seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


def train(trial: TrialContext) -> None:
    """`n` reports; where `improving`, each is the best so far and has a state to keep."""
    state = {"weights": {f"layer{i}": torch.zeros(64, 64) for i in range(4)}}
    seconds, cpu = [], 0.0
    for step in range(trial.params["n"]):
        _train_for(_EPOCH_SECONDS)
        loss = 1 / (step + 1) if trial.params["improving"] else 1.0 + step
        cpu -= time.thread_time()
        begun = time.perf_counter()
        trial.report(step, {"train_loss": loss, "val_loss": loss}, checkpoint=lambda: state)
        seconds.append(time.perf_counter() - begun)
        cpu += time.thread_time()
    Path(FILE).write_text(json.dumps(seconds))
    Path(CPU_FILE).write_text(json.dumps(cpu / len(seconds)))


def train_as_optuna(trial: optuna.Trial) -> float:
    """`n` reports through Optuna's interface, each with its question whether to go on."""
    n_reports = trial.suggest_int("n", 1, 10**6)
    improving = trial.suggest_categorical("improving", [True, False])
    seconds, cpu = [], 0.0
    for step in range(n_reports):
        ends = time.perf_counter() + _EPOCH_SECONDS
        while time.perf_counter() < ends:
            pass
        loss = 1 / (step + 1) if improving else 1.0 + step
        cpu -= time.thread_time()
        begun = time.perf_counter()
        trial.report(loss, step)
        assert not trial.should_prune()
        seconds.append(time.perf_counter() - begun)
        cpu += time.thread_time()
    Path(FILE).write_text(json.dumps(seconds))
    Path(CPU_FILE).write_text(json.dumps(cpu / len(seconds)))
    return 0.0
