"""The second peer: Ray Tune with its own MLflow callback, actors reused, one CPU per trial.

In the peer's favour: no dashboard, and the checkpoint stays where Ray Tune keeps it (the callback's
`save_artifact` would not take it along).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search.optuna import OptunaSearch
from settings import SETTINGS, Setting, load_data, peer_parser
from space import Data, Params, build, train


def objective(config: dict[str, Any], setting: Setting, data: Data, seed: int) -> None:
    """One trial: train, report every epoch, the last one with a checkpoint."""
    torch.set_num_threads(1)
    params = Params(**config)
    model = build(params, data, seed)
    epochs = train(model, params, data, n_epochs=setting.n_epochs, seed=seed)
    for epoch, metrics in enumerate(epochs):
        if epoch < setting.n_epochs - 1:
            tune.report(setting.record(metrics))
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report(setting.record(metrics), checkpoint=checkpoint)


def tune_space(setting: Setting) -> dict[str, Any]:
    """The space in Ray Tune's words, whose upper ends of integers are exclusive."""
    space = setting.space
    return {
        "depth": tune.randint(space.depth[0], space.depth[1] + 1),
        "width": tune.lograndint(space.width[0], space.width[1] + 1),
        "lr": tune.loguniform(*space.lr),
        "batch_size": tune.choice(list(space.batch_sizes)),
    }


def main() -> None:
    arguments = peer_parser(__doc__)
    arguments.add_argument("--cpus", type=int, default=2)
    arguments.add_argument("--address", help="of a cluster that is there")
    args = arguments.parse_args()
    setting = SETTINGS[args.setting]
    data = load_data(args.setting, args.table)
    cluster = {"address": args.address} if args.address else {"num_cpus": args.cpus}
    ray.init(**cluster, include_dashboard=False, log_to_driver=False)
    # metric and mode are named once, for the search; with random draws there is nothing to name.
    search = OptunaSearch(metric="val_loss", mode="min", seed=args.seed)
    tuner = tune.Tuner(
        tune.with_parameters(objective, setting=setting, data=data, seed=args.seed),
        param_space=tune_space(setting),
        tune_config=tune.TuneConfig(
            num_samples=args.trials,
            reuse_actors=True,
            search_alg=search if args.sampler == "tpe" else None,
            time_budget_s=args.seconds,
        ),
        run_config=tune.RunConfig(
            name="throughput",
            storage_path=str(Path.cwd() / "ray_results"),
            callbacks=[
                MLflowLoggerCallback(
                    tracking_uri="sqlite:///mlflow.db", experiment_name="throughput"
                )
            ],
            verbose=0,
        ),
    )
    tuner.fit()


if __name__ == "__main__":
    main()
