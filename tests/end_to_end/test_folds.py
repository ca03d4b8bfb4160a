"""A study with folds and no test rows, from the table to the model that is exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.models.predictor import Predictor
from automl.record.studies import read_study
from automl.trial import CheckpointKind, ModelsEvaluated, RowsKind, TrialState
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.end_to_end.test_evaluate import write_table

pytestmark = pytest.mark.slow

WORDS = (
    *("study.name=f", "data=csv", "model=mlp", "data.path=table.csv", "data.target=y"),
    *("data.folds=3", "data.test=0", "space.width=8", "space.depth=1"),
    *("study.n_trials=4", "training.epochs=9", "sampler=random", "devices.only=cpu"),
)


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    """A folder with a study `f`."""
    write_table(module_program.folder / "table.csv", n_rows=240)
    done = module_program.start(*WORDS).wait()
    assert (done.code, done.stderr) == (0, "")
    assert "240 train and judge, none kept for a test" in done.stdout
    assert "a trial trains 3 models, and its value is out-of-fold" in done.stdout
    assert "best trials, val_loss out-of-fold" in done.stdout
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "f")


def best_model(study: Records) -> Predictor:
    best = read_study(study.path).best()
    assert best is not None
    path = study.path / "checkpoints" / f"trial-{best.number:05d}" / "best.pt"
    model = automl.load(path)
    assert isinstance(model, Predictor)
    return model


def test_only_finished_trials_have_values_and_models(study: Records) -> None:
    record = read_study(study.path)
    states = {n: trial.state for n, trial in record.trials.items()}
    finished = [n for n, state in states.items() if state is TrialState.FINISHED]
    assert finished
    assert [trial.number for trial in record.ranking()] == sorted(
        finished, key=lambda n: float(record.trials[n].value or np.nan)
    )
    for number, trial in record.trials.items():
        assert (CheckpointKind.BEST in trial.checkpoints) == (number in finished)


def test_the_out_of_fold_score_is_called_so(study: Records, call: Call) -> None:
    done = call("evaluate", "study.name=f", "copy=false")
    assert (done.code, done.stderr) == (0, "")
    assert "\nf: 240 rows out-of-fold, by which trials were chosen" in done.stdout
    (event,) = (event for event in study.events() if isinstance(event, ModelsEvaluated))
    best = read_study(study.path).best()
    assert best is not None
    name = f"trial-{best.number:05d}"
    assert (event.kind, event.n_rows) == (RowsKind.OUT_OF_FOLD, 240)
    assert event.scores[name]["loss"].value == pytest.approx(best.value, rel=1e-5)
    assert best.best_metrics["val_error"] == pytest.approx(event.scores[name]["error"].value)
    assert event.scores["linear"]["loss"].value < event.scores["majority"]["loss"].value
    metrics = study.trial_runs()[best.number].data.metrics
    assert metrics["out_of_fold_loss"] == pytest.approx(best.value, rel=1e-5)
    assert "test_loss" not in metrics
    later = write_table(study.path.parents[1] / "later.csv", seed=9, n_rows=80)
    done = call("evaluate", "study.name=f", "data.test=later.csv")
    assert "f: 80 rows no sweep saw (of later.csv)\n" in done.stdout
    shown = [event for event in study.events() if isinstance(event, ModelsEvaluated)][-1].scores[
        name
    ]
    assert best_model(study).score(later)["loss"] == pytest.approx(shown["loss"].value)


def test_its_models_are_exported_as_one(study: Records, call: Call, folder: Path) -> None:
    done = call("export", "study.name=f", "copy=false", "format=torch")
    assert (done.code, done.stderr) == (0, "")
    assert "the export says what the model says" in done.stdout


def test_a_refit_trains_one_model_on_all_rows(study: Records, call: Call) -> None:
    done = call("refit", "study.name=f", "copy=false")
    assert (done.code, done.stderr) == (0, "")
    assert "240 rows (train+validation)" in done.stdout
    refitted = automl.load(study.path / "refit.pt")
    assert isinstance(refitted, Predictor)
    frame = pd.read_csv("table.csv")
    assert not isinstance(refitted.model, list)
    assert len(best_model(study).model) == 3
    assert np.mean(refitted.predict(frame) == best_model(study).predict(frame)) > 0.9


def test_a_study_goes_on_with_its_folds_alone(study: Records, call: Call) -> None:
    done = call("resume", "study.name=f", "copy=false", "data.folds=4")
    assert done.code == 2
    assert "data.folds: 3 in the study, 4 now" in done.stderr
