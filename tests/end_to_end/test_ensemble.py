"""`model=auto` ends with an ensemble, and `ensemble` makes one of any study of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.record.studies import read_study
from tests.end_to_end.conftest import Call
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow

FEW = (
    *("study.name=a", "devices.only=cpu", "study.n_trials=3", "training.epochs=2"),
    *("data.n_train=200", "data.n_validation=100", "pruner=none", "execution=inline"),
)
AUTO = (*FEW, "model=auto", "space=auto", "model.families=[mlp]")
POINTS = np.random.default_rng(0).uniform(-1, 1, (40, 2))


def test_a_sweep_of_several_families_ends_with_an_ensemble(folder: Path, call: Call) -> None:
    done = call(*AUTO)
    assert (done.code, done.stderr) == (0, "")
    assert "ensemble: studies/a/ensemble.pt" in done.stdout
    made = read_study(folder / "studies" / "a").ensemble
    assert made is not None
    assert made.n_rows == 100
    each = [
        automl.load(f"studies/a/checkpoints/trial-{n:05d}/best.pt").predict_probabilities(POINTS)
        for n in made.members
    ]
    expected = np.average(each, axis=0, weights=list(made.members.values()))
    found = automl.load("studies/a/ensemble.pt").predict_probabilities(POINTS)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    run = next(run for run in Records(folder, "a").runs() if run.info.run_name == "a")
    assert run.data.metrics["ensemble_loss"] == pytest.approx(made.scores["loss"])


def test_one_model_is_none_to_join(folder: Path, call: Call) -> None:
    call(*FEW, "study.n_trials=1")
    done = call("evaluate", "a", "which=ensemble")
    assert done.code == 2
    assert "two models or more" in done.stderr


def test_of_one_family_it_is_made_by_command_alone_and_later_commands_take_it(
    folder: Path, call: Call
) -> None:
    assert "ensemble" not in call(*FEW).stdout
    done = call("evaluate", "a", "which=ensemble")
    assert done.code == 0
    assert "ensemble: studies/a/ensemble.pt" in done.stdout
    assert call("evaluate", "study.name=a").code == 0
    scored = read_study(folder / "studies" / "a").evaluations[-1]
    assert scored.models[0] == "ensemble"
    assert len(scored.trials) == 1, "the best stands beside it"
    pd.DataFrame(POINTS, columns=["x1", "x2"]).to_csv("rows.csv", index=False)
    done = call("predict", "study.name=a", "table=rows.csv", "to=out.csv")
    assert done.code == 0
    assert "ensemble of a scores rows.csv" in done.stdout
    found = pd.read_csv("out.csv").prediction
    np.testing.assert_array_equal(found, automl.load("studies/a/ensemble.pt").predict(POINTS))
    done = call("export", "study.name=a", "which=ensemble", "to=out")
    assert done.code == 0, done.stderr
    assert "all labels the same" in done.stdout
    done = call("export", "study.name=a", "which=ensemble,1")
    assert (done.code, "export takes one model" in done.stderr) == (2, True)


def test_none_where_none_is_wanted_and_one_that_cannot_be_written_is_said_and_made_later(
    folder: Path, call: Call
) -> None:
    assert "ensemble" not in call(*AUTO, "study.finish=none").stdout
    file = folder / "studies" / "a" / "ensemble.pt"
    file.mkdir()  # refused, were it there already
    done = call("resume", "study.name=a", "study.finish=auto", "study.n_trials=4")
    assert done.code == 0, done.stderr
    assert "no ensemble was made (" in done.stdout
    assert "make it with: python -m automl evaluate a which=ensemble" in done.stdout
    assert "4 finished" in done.stdout
    assert read_study(folder / "studies" / "a").ensemble is None
    file.rmdir()
    done = call("evaluate", "a", "which=ensemble")
    assert (done.code, done.stderr) == (0, "")
    assert file.is_file()


def test_of_several_families_the_trial_that_can_be_exported_is_named(
    folder: Path, call: Call
) -> None:
    both = "[{family: linear}, {family: mlp}]"
    call(*AUTO, "model.families=[linear,mlp]", "study.n_trials=2", f"study.enqueue={both}")
    done = call("export", "study.name=a", "which=0", "format=torch")
    assert done.code == 2
    assert "The best trial that has it is 1 (mlp): which=1" in done.stderr
    for trial, kind in (("1", "torch"), ("0", "onnx")):
        words = (f"which={trial}", f"format={kind}")
        assert call("export", "study.name=a", *words).code == 0
