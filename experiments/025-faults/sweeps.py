"""The same small sweep as a program of each library; started again, it goes on.

    python experiments/025-faults/sweeps.py LIBRARY FOLDER

A trial has six epochs of 20 ms. After each `report` that returned it writes a line into `acks`:
that metric counts as acknowledged. Two trials run at once, as the library's documentation says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

N_TRIALS, N_EPOCHS, EPOCH_SECONDS = 12, 6, 0.02


def value_of(x: float, step: int) -> float:
    return x + 1 / (step + 1)


def acknowledge(folder: Path, trial: object, step: int, value: float) -> None:
    """Write one line at once, as another process would hear of it."""
    with (folder / "acks").open("ab", buffering=0) as file:
        file.write(f"{trial} {step} {value!r}\n".encode())


def start_grandchild() -> None:
    """Start what a user's training starts: a loader of data, a compiler."""
    if "GRANDCHILD" in os.environ:
        subprocess.Popen(["sleep", "300"])


def run_automl(folder: Path) -> None:
    os.chdir(folder)
    words = [
        "study.name=faults",
        f"study.n_trials={N_TRIALS}",
        "objective=python",
        "objective.target=sweeps:train_automl",
        "space={x: {low: 0.0, high: 1.0}}",
        "sampler=random",
        "pruner=none",
        "devices.only=cpu",
        "tracking.uri=none",
        "training.checkpoint_every_seconds=0",
        "admission.max_concurrent_trials=2",
    ]
    if (folder / "studies").exists():
        words.append("copy=false")  # a damaged study lies in a folder of its own
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": here}
    command = [sys.executable, "-m", "automl", *words]
    os.execve(sys.executable, command, environment)


def train_automl(trial: Any) -> None:
    folder = trial.directory.parents[3]
    start_grandchild()
    state = trial.restore()
    for step in range(0 if state is None else state["step"] + 1, N_EPOCHS):
        time.sleep(EPOCH_SECONDS)
        value = value_of(trial.params["x"], step)
        trial.report(step, {"val_loss": value}, checkpoint=lambda step=step: {"step": step})
        acknowledge(folder, trial.number, step, value)


def optuna_url(library: str, folder: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if library == "optuna-sqlite":
        return f"sqlite:///{folder}/optuna.db"
    return JournalStorage(JournalFileBackend(str(folder / "optuna.log")))


def run_optuna(library: str, folder: Path) -> None:
    import optuna

    def train(trial: optuna.Trial) -> float:
        start_grandchild()
        x = trial.suggest_float("x", 0, 1)
        for step in range(N_EPOCHS):
            time.sleep(EPOCH_SECONDS)
            value = value_of(x, step)
            trial.report(value, step)
            acknowledge(folder, trial.number, step, value)
        return value

    study = optuna.create_study(
        storage=optuna_url(library, folder),
        study_name="faults",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    enough = optuna.study.MaxTrialsCallback(N_TRIALS, states=(optuna.trial.TrialState.COMPLETE,))
    n_done = len(study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    if n_done < N_TRIALS:
        study.optimize(train, n_jobs=2, callbacks=[enough])


def run_ray(folder: Path) -> None:
    import json
    import tempfile

    import ray
    from ray import tune

    def train(config: dict[str, float]) -> None:
        start_grandchild()
        first, kept = 0, tune.get_checkpoint()
        if kept is not None:
            with kept.as_directory() as there:
                first = json.loads((Path(there) / "state").read_text()) + 1
        for step in range(first, N_EPOCHS):
            time.sleep(EPOCH_SECONDS)
            value = value_of(config["x"], step)
            with tempfile.TemporaryDirectory() as there:
                (Path(there) / "state").write_text(json.dumps(step))
                checkpoint = tune.Checkpoint.from_directory(there)
                tune.report({"step": step, "val_loss": value}, checkpoint=checkpoint)
            acknowledge(folder, tune.get_context().get_trial_id(), step, value)

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    trainable = tune.with_resources(train, {"cpu": 1})
    where = folder / "results" / "faults"
    if tune.Tuner.can_restore(str(where)):
        tuner = tune.Tuner.restore(str(where), trainable, resume_unfinished=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=N_TRIALS),
            run_config=tune.RunConfig(
                name="faults", storage_path=str(folder / "results"), verbose=0
            ),
        )
    tuner.fit()


def main(library: str, folder: Path) -> None:
    if library == "automl":
        run_automl(folder)
    elif library == "ray":
        run_ray(folder)
    else:
        run_optuna(library, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
