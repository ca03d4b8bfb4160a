"""From `model=auto` to a served model by `release`: the ensemble, refitted, as one graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

import automl
from automl.record.studies import read_study
from automl.trial import ModelsEvaluated, RowsKind, trial_name
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.end_to_end.served_model import ask, serve_champion
from tests.end_to_end.tables import AUTO, TARGET, wine_like

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
NAME = "study.name=a"
pytestmark = pytest.mark.slow


def test_the_ensemble_is_what_is_served(folder: Path, call: Call, program: Program) -> None:
    wine_like().to_csv("wine.csv", index=False)
    assert call(NAME, *AUTO).code == 0
    study = Records(folder, "a")
    made = read_study(study.path).best_ensemble
    assert made is not None
    done = call("release", NAME)
    assert (done.code, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert "evaluate ensemble: loss " in said
    assert "refit ensemble again on train+validation: refit.pt" in said
    assert "evaluate the refit refit-ensemble: loss " in said
    assert "from that of ensemble" in said
    assert "export studies/a/exports/refit-ensemble-onnx, which says what the model says" in said
    assert "register version 1 of a, champion" in said
    scores = [event for event in study.events() if isinstance(event, ModelsEvaluated)]
    best = read_study(study.path).best()
    assert best is not None
    both = ("refit-ensemble", "ensemble")
    assert [event.models for event in scores] == [("ensemble", f"trial-{best.number:05d}"), both]

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    version = client.get_model_version_by_alias("a", "champion")
    assert version.tags["automl.model"] == "refit-ensemble"
    run = client.get_run(str(version.run_id))
    assert run.data.tags["automl.kind"] == "refit"
    assert run.info.run_name.startswith("refit-ensemble-")
    assert run.info.status == "FINISHED"

    again = call("release", NAME)
    assert again.stdout.count("(done before)") == 4
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    assert len(client.search_model_versions("name='a'")) == 1

    frame = wine_like()[:20].drop(columns=TARGET)
    rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    answers = ask(serve_champion(program, "a"), list(frame.columns), rows)
    expected = automl.load(study.path / "refit.pt").predict(frame)
    np.testing.assert_allclose([row["prediction"] for row in answers], expected, atol=1e-5)


def test_of_folds_it_is_evaluated_and_released_by_the_models_that_never_saw_a_row(
    folder: Path, call: Call
) -> None:
    wine_like()[:150].to_csv("wine.csv", index=False)
    words = ("data.folds=2", "data.test=0", "study.name=a")
    assert call(*AUTO, *words).code == 0
    study = Records(folder, "a")
    made = read_study(study.path).ensemble
    assert made is not None
    assert len(made.members) > 1
    done = call("evaluate", NAME, "which=ensemble")
    assert (done.code, done.stderr) == (0, "")
    (event,) = (event for event in study.events() if isinstance(event, ModelsEvaluated))
    assert event.kind is RowsKind.OUT_OF_FOLD
    found = event.scores["ensemble"]["loss"].value
    assert found == pytest.approx(made.scores["loss"], abs=1e-9)
    ((best, alone),) = made.alone.items()
    theirs = event.scores[trial_name(best)]["loss"].value
    assert theirs == pytest.approx(alone["loss"], abs=1e-9)
    assert call("release", NAME).code == 0
