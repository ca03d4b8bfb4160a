"""A study's refit is what `evaluate`, `predict` and `export` take, and they say so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.record.studies import read_study
from automl.trial import ModelsEvaluated, RowsKind, refit_name, trial_name
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow

NAME = "study.name=a"
MOVED = (NAME, "copy=false")
SMALL = (
    *(NAME, "devices.only=cpu", "sampler=random", "pruner=none", "study.n_trials=2"),
    *("training.epochs=4", "data.n_train=200", "data.n_validation=100", "execution=inline"),
)


@pytest.fixture(scope="module")
def refitted(module_program: Program) -> Path:
    for words in (SMALL, ("refit", NAME, "seeds=2")):
        done = module_program.start(*words).wait()
        assert (done.code, done.stderr) == (0, "")
    return module_program.folder


@pytest.fixture
def study(refitted: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(refitted, folder, "a")


def best_of(study: Records) -> int:
    best = read_study(study.path).best()
    assert best is not None
    return best.number


def test_its_scores_stand_beside_those_of_the_trial_it_repeats(study: Records, call: Call) -> None:
    done = call("evaluate", *MOVED)
    assert (done.code, done.stderr) == (0, "")
    number = best_of(study)
    lines = done.stdout.splitlines()
    assert lines[3].split()[:4] == ["loss", "refit", "of", str(number)]
    assert lines[4].split()[:2] == ["trial", str(number)]
    assert f"difference: from refit of {number}," in done.stdout
    (event,) = (event for event in study.events() if isinstance(event, ModelsEvaluated))
    assert event.models == (refit_name(number), trial_name(number))
    assert next(iter(event.differences)) == trial_name(number)
    own = event.scores[trial_name(number)]["loss"].value
    refit = event.scores[refit_name(number)]["loss"].value
    assert own != refit
    runs = {str(run.info.run_name): run.data for run in study.runs()}
    assert runs[trial_name(number)].metrics["test_loss"] == pytest.approx(own)
    assert runs["a"].metrics["test_loss"] == pytest.approx(refit)
    assert runs["a"].tags["automl.evaluated"].startswith(refit_name(number))
    frame = automl.open_study("a").evaluate(overrides=["copy=false"])
    assert frame.loc[("loss", f"refit of {number}"), "score"] == pytest.approx(refit)


def test_it_is_not_scored_on_rows_that_it_learned_from(study: Records, call: Call) -> None:
    assert call("refit", *MOVED, "rows=all").code == 0
    done = call("evaluate", *MOVED)
    assert (done.code, done.stderr) == (0, "")
    assert "refit.pt was trained on these rows, too (rows=all)" in done.stdout
    (event,) = (event for event in study.events() if isinstance(event, ModelsEvaluated))
    assert event.models == (trial_name(best_of(study)),)
    assert event.kind is RowsKind.KEPT
    asked = call("evaluate", *MOVED, "which=refit")
    assert asked.code == 2
    assert "which=refit: refit.pt was trained on these rows, too" in asked.stderr


def test_a_table_is_scored_by_it_or_by_the_trial_that_is_asked_for(
    study: Records, call: Call
) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (20, 2)), columns=["x1", "x2"])
    rows.to_csv("rows.csv", index=False)
    files = {
        (): (refit_name(best_of(study)), study.path / "refit.pt"),
        ("which=best",): (
            trial_name(best_of(study)),
            study.path / "checkpoints" / trial_name(best_of(study)) / "best.pt",
        ),
    }
    for words, (name, file) in files.items():
        done = call("predict", *MOVED, "table=rows.csv", "to=out.csv", *words)
        assert (done.code, done.stderr) == (0, "")
        assert f"{name} of a scores rows.csv" in done.stdout
        found = pd.read_csv("out.csv")["probability_1"]
        assert np.allclose(found, automl.load(file).predict_probabilities(rows)[:, 1])


def test_one_seed_and_the_mean_of_several_are_exported(study: Records, call: Call) -> None:
    done = call("export", *MOVED, "format=torch")
    assert (done.code, done.stderr) == (0, "")
    name = refit_name(best_of(study))
    assert f"\n{name} of a: format=torch" in done.stdout
    schema = json.loads((study.path / "exports" / f"{name}-torch" / "schema.json").read_text())
    assert (schema["trial"], schema["refit"]) == (best_of(study), True)
    assert schema["model_file"]["name"] == "refit.pt"


def test_a_trial_that_is_better_by_now_is_named(study: Records, call: Call) -> None:
    other = 1 - best_of(study)
    assert call("refit", *MOVED, f"which={other}").code == 0
    done = call("evaluate", *MOVED)
    best = trial_name(best_of(study))
    assert f"the best trial is {best} by now, and the refit is of {trial_name(other)}" in (
        " ".join(done.stdout.split())
    )
