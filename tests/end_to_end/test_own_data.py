"""Data of the user's own, swept: what the parent loads, a kill, the winner, what changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl.models.array_predictor import ArrayPredictor
from automl.trial import ModelsEvaluated
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, wait_until
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow


SOURCE = """
import torch
from torch import nn

CALLED_SEED = 0

def bars(n_rows, seed):
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n_rows,), generator=draw)
    x = torch.rand(n_rows, 1, 6, 6, generator=draw) * 0.5
    x[y == 0, 0, 2] += 1
    x[y == 1, 0, :, 2] += 1
    return x, y

def parts():
    return {"train": bars(200, CALLED_SEED), "validation": bars(80, 100), "test": bars(50, 7)}

def build(n_inputs, n_outputs, channels=4):
    return nn.Sequential(
        nn.Conv2d(n_inputs[0], channels, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        nn.Linear(channels, n_outputs),
    )
"""
PAIRS = """
class Pairs(torch.utils.data.TensorDataset):
    classes = ("across", "down")
"""
N_TRIALS = 3
WORDS = (
    "study.name=images",
    f"study.n_trials={N_TRIALS}",
    "data=python",
    "data.source=mine.py:parts",
    "model=python",
    "model.target=mine.py:build",
    "space={channels: 4, lr: {low: 1e-2, high: 1e-1, log: true}, batch_size: 40}",
    "training.epochs=60",
    "training.schedule=cosine",
    "training.checkpoint_every_seconds=0",
    "sampler=random",
    "pruner=none",
    "admission.max_concurrent_trials=1",
)
PREPARED = """
import json, sys
from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.running.prepare.preparation import prepare_study

if __name__ == "__main__":
    prepared = prepare_study(compose_command(parse_command_line(json.loads(sys.argv[1]))).config)
    loaded = [name for name in ("torch", "mine") if name in sys.modules]
    print(json.dumps([prepared.facts.n_train, prepared.identity["data"]["digest"], loaded]))
"""


SPACE: dict[str, Any] = {}
exec(SOURCE, SPACE)
images, bars_network = SPACE["bars"], SPACE["build"]


def test_images_are_swept_killed_and_gone_on_with(program: Program) -> None:
    Path(program.folder, "mine.py").write_text(SOURCE)
    running = program.start(*WORDS)
    records = Records(program.folder, "images")
    wait_until(
        lambda: bool(list(program.folder.glob("studies/images/checkpoints/*/last.pt"))), "none"
    )
    running.kill()
    again = program.call("resume", "study.name=images")
    assert (again.code, again.stderr) == (0, "")
    assert "mine.py:parts: 200 train, 80 validation, 50 test; rows (1, 6, 6)" in again.stdout
    losses = records.losses()
    assert {number for number, _ in losses} == set(range(N_TRIALS))
    assert {run.info.status for run in records.trial_runs().values()} == {"FINISHED"}

    line = next(line for line in again.stdout.splitlines() if line.startswith("best model: "))
    namespace: dict[str, object] = {}
    exec(SOURCE, namespace)
    best = automl.load(
        program.folder / line.removeprefix("best model: "),
        build=namespace["build"],  # type: ignore[arg-type]
    )
    x, y = namespace["bars"](80, 100)  # type: ignore[operator]
    assert (best.predict(x) == np.asarray(y)).mean() > 0.9

    Path(program.folder, "mine.py").write_text(SOURCE.replace("CALLED_SEED = 0", "CALLED_SEED = 1"))
    refused = program.call("resume", "study.name=images")
    assert refused.code == 2
    assert "data.digest:" in refused.stderr


def test_the_test_part_is_for_evaluate(folder: Path, call: Call) -> None:
    Path("mine.py").write_text(SOURCE)
    few = ("study.n_trials=1", "training.epochs=3", "execution=inline", "devices.only=cpu")
    assert call(*WORDS, *few).code == 0
    scored = call("evaluate", "study.name=images")
    assert (scored.code, scored.stderr) == (0, "")
    assert "images: 50 rows no sweep saw (of mine.py:parts)" in scored.stdout
    assert "majority" in scored.stdout
    (event,) = (e for e in Records(folder, "images").events() if isinstance(e, ModelsEvaluated))
    assert event.models == ("trial-00000",)
    refused = call("predict", "study.name=images", "table=a.csv", "to=b.csv")
    assert refused.code == 2
    assert "predict needs a table" in refused.stderr


def test_the_parent_learns_sizes_and_digest_and_loads_neither_torch_nor_the_users_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "prepared.py").write_text(PREPARED)
    done = subprocess.run(
        [sys.executable, "prepared.py", json.dumps(WORDS)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    n_train, digest, loaded = json.loads(done.stdout.splitlines()[-1])
    assert (n_train, len(digest), loaded) == (200, 64, [])


def test_settings_that_do_not_go_together_are_refused(program: Program) -> None:
    Path(program.folder, "mine.py").write_text(SOURCE)
    for words, message in (
        (("data=python",), "data=python needs data.source=module:function"),
        (("data=digits", "data.source=mine:parts"), "data.source=mine:parts: is for data=python"),
        (("data=python", "data.source=mine:parts"), "add model=python model.target="),
        ((*WORDS, "data.path=a.csv"), "data.path=a.csv: is for data=csv"),
        ((*WORDS, "study.metric=val_rmse"), "study.metric=val_rmse: does not suit the targets"),
    ):
        refused = program.call(*words)
        assert refused.code == 2
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr


FEW = ("study.n_trials=1", "training.epochs=3", "execution=inline", "devices.only=cpu")


def test_the_winner_is_trained_again_on_training_and_validation_rows(
    folder: Path, call: Call
) -> None:
    Path("mine.py").write_text(SOURCE)
    assert call(*WORDS, *FEW).code == 0
    done = call("refit", "study.name=images")
    assert (done.code, done.stderr) == (0, "")
    assert "280 rows (train+validation)" in done.stdout
    refit = automl.load(folder / "studies/images/refit.pt", build=bars_network)
    assert isinstance(refit, ArrayPredictor)
    assert refit.refitted is not None
    assert (refit.refitted.trial, refit.refitted.rows) == (0, "train+validation")
    assert refit.study == "images"
    assert list(refit.metrics) == ["train_loss"], "no rows are left to judge by"
    scored = call("evaluate", "study.name=images")
    assert (scored.code, scored.stderr) == (0, "")
    (event,) = (e for e in Records(folder, "images").events() if isinstance(e, ModelsEvaluated))
    assert event.models == ("refit-trial-00000", "trial-00000")
    x, y = (side.numpy() for side in images(50, 7))
    error = event.scores["refit-trial-00000"]["error"].value
    assert refit.score(x, y)["error"] == pytest.approx(error)


def test_a_refit_of_datasets_stops_by_rows_that_are_held_out(folder: Path, call: Call) -> None:
    Path("mine.py").write_text(SOURCE.replace("return x, y", "return Pairs(x, y)") + PAIRS)
    assert call(*WORDS, *FEW).code == 0
    done = call("refit", "study.name=images", "rows=all", "hold_out=0.1")
    assert (done.code, done.stderr) == (0, "")
    assert "297 rows (all), 0.1 held out to stop by" in done.stdout
    refit = automl.load("studies/images/refit.pt", build=bars_network)
    assert "val_loss" in refit.metrics
    known = call("evaluate", "study.name=images", "which=refit")
    assert known.code == 2
    assert "refit.pt was trained on these rows, too (rows=all)" in known.stderr
    assert 'as part "test" of mine.py:parts' in known.stderr
