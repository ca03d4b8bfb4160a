"""A sweep over a network of the user's own, and its winner used."""

from __future__ import annotations

import torch

import automl
from automl.config import DataConfig
from automl.data.load import load_dataset
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.features import x_of
from tests.models.networks import normed


def test_a_network_of_the_users_is_swept_in_packs_and_predicts(module_program: Program) -> None:
    done = module_program.call(
        "study.name=nets",
        "study.n_trials=6",
        "model=python",
        "model.target=tests.models.networks:normed",
        "space={width: 16, lr: {low: 1e-2, high: 3e-2, log: true}, batch_size: 64}",
        "training.epochs=5",
        "sampler=random",
        "pruner=none",
        "admission.max_concurrent_trials=1",
    )
    assert (done.code, done.stderr) == (0, "")
    records = Records(module_program.folder, "nets")
    runs = records.trial_runs()
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    starts = [run.info.start_time for run in runs.values()]
    ends = [run.info.end_time for run in runs.values()]
    assert max(starts) < min(ends), "they trained together"

    line = next(line for line in done.stdout.splitlines() if line.startswith("best model: "))
    path = module_program.folder / line.removeprefix("best model: ")
    disc = load_dataset(DataConfig())
    predictor = automl.load(path, build=normed)
    labels = [predictor.classes[y] for y in disc.validation.y]
    assert (predictor.predict(x_of(disc, disc.validation)) == labels).mean() > 0.8
    assert torch.load(path, weights_only=True)["state"]["model"]["arguments"] == {"width": 16}
