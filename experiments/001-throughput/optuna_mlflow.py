"""The first peer: Optuna on SQLite, results in MLflow on SQLite, as its users write it today.

Two things are chosen in the peer's favour: no `trial.report` (no pruner needs it), and no
dependence on a server.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import mlflow
import optuna
import torch
from settings import SETTINGS, Setting, load_data, peer_parser
from space import Data, Params, build, train


class Objective:
    """One trial: suggest, train, record every epoch and one checkpoint in MLflow."""

    def __init__(self, setting: Setting, data: Data, seed: int) -> None:
        self._setting, self._data, self._seed = setting, data, seed

    def __call__(self, trial: optuna.Trial) -> float:
        space, seed = self._setting.space, self._seed + trial.number
        params = Params(
            depth=trial.suggest_int("depth", *space.depth),
            width=trial.suggest_int("width", *space.width, log=True),
            lr=trial.suggest_float("lr", *space.lr, log=True),
            batch_size=trial.suggest_categorical("batch_size", space.batch_sizes),
        )
        best = float("inf")
        with mlflow.start_run(run_name=f"trial-{trial.number:05d}"):
            mlflow.log_params(trial.params)
            model = build(params, self._data, seed)
            epochs = train(model, params, self._data, n_epochs=self._setting.n_epochs, seed=seed)
            for epoch, metrics in enumerate(epochs):
                mlflow.log_metrics(self._setting.record(metrics), step=epoch)
                best = min(best, metrics["val_loss"])
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.pt"
                torch.save(model.state_dict(), path)
                mlflow.log_artifact(str(path))
        return best


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """The peer's own defaults, but for the seed."""
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)


def main() -> None:
    arguments = peer_parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=1, help="n_jobs of study.optimize")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("throughput")
    study = optuna.create_study(
        storage="sqlite:///optuna.db",
        study_name="throughput",
        sampler=make_sampler(args.sampler, args.seed),
        direction="minimize",
    )
    study.optimize(
        Objective(SETTINGS[args.setting], load_data(args.setting, args.table), args.seed),
        n_trials=args.trials,
        n_jobs=args.jobs,
        timeout=args.seconds,
    )


if __name__ == "__main__":
    main()
