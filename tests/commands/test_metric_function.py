"""A metric of the user's own as its user sees it: from the command line, from Python and by
scikit-learn, and each number compared with the function's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import automl
from automl.cli import main
from automl.config import Config, ObjectiveConfig, ObjectiveKind, StudyConfig
from automl.errors import ConfigError
from automl.models.predictor import Predictor
from automl.record.studies import read_study

FEW = ("devices.only=cpu", "data.folds=1", "tracking.uri=none", "model.families=[linear,trees]")
COSTS = """
import numpy as np

def cost(y_true, y_predicted):
    wrong = y_true != y_predicted
    return float(np.where(y_true == "ill", 10 * wrong, wrong).mean())

def broken(y_true, y_predicted):
    return y_true == y_predicted
"""


def cost(y_true: Any, y_predicted: Any) -> float:
    wrong = y_true != y_predicted
    return float(np.where(y_true == "ill", 10 * wrong, wrong).mean())


def table(n: int = 240, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.standard_normal((n, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.where(frame.a + draw.standard_normal(n) > 0.8, "ill", "well")
    return frame


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table().to_csv("kinds.csv", index=False)
    Path("costs.py").write_text(COSTS)
    return tmp_path


def test_a_function_in_a_file_judges_trials_ensemble_and_evaluate(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("table=kinds.csv", "target=kind", "metric=costs.py:cost", "study.name=first")
    test = table(80, seed=1)
    test.to_csv("test.csv", index=False)
    assert main([*words, *FEW, "n_trials=2", "data.test=test.csv"]) == 0
    said = capfd.readouterr().out
    assert "best val_cost" in said
    board = automl.open_study("first").leaderboard()
    (shown,) = re.findall(r"80 test +\w+ +([\d.]+)", said)
    model = automl.load("studies/first/ensemble.pt")
    assert isinstance(model, Predictor)
    assert model.threshold == pytest.approx(10 / 11), "of the second class, well"
    assert float(shown) == pytest.approx(cost(test.kind, model.predict(test)), abs=1e-4)
    assert board.value.drop("refit").notna().all(), "the baseline's, too"
    assert main(["evaluate", "first", "data.test=test.csv", "which=ensemble"]) == 0
    said = capfd.readouterr().out
    (shown,) = re.findall(r"cost +ensemble +([\d.]+)", said)
    assert float(shown) == pytest.approx(cost(test.kind, model.predict(test)), abs=1e-4)
    named = automl.open_study("first").leaderboard()
    assert named.test["ensemble"] == pytest.approx(float(shown), abs=1e-4)

    Path("costs.py").write_text(COSTS.replace("10 * wrong", "20 * wrong"))
    assert main(["resume", "first", "n_trials=3"]) == 0
    assert "study.metric has changed since trial 1" in capfd.readouterr().out
    refit = automl.load("studies/first/refit.pt")
    assert isinstance(refit, Predictor)
    assert refit.threshold == pytest.approx(10 / 11), "as the trial has it"
    assert main([*words[:2], words[3], *FEW, "n_trials=4", "data.test=test.csv"]) == 2
    differs = r"study\.metric: \"?val_cost\"? in the study, \"?val_loss\"? now"
    assert re.search(differs, capfd.readouterr().err)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("costs.py:broken", "study.metric=costs.py:broken: it returned ndarray array"),
        ("costs.py:cots", "costs.py has no cots. It has: broken, cost"),
        ("absent.py:cost", "there is no file absent.py"),
        ("[costs.py:cost,costs.py:broken]", "one metric may be a function of your own"),
        ("costs.py:f1", "val_f1 is a metric of ours: give the function another name"),
    ],
)
def test_what_is_no_metric_is_refused_before_the_first_trial(
    folder: Path, metric: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("table=kinds.csv", "target=kind", "study.name=first")
    assert main([*words, *FEW, f"metric={metric}"]) == 2
    assert message in capfd.readouterr().err
    assert not Path("studies/first/events.log").exists()


def test_a_function_called_from_python_is_part_of_the_study(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments: dict[str, Any] = {"name": "py", "overrides": FEW, "verbose": False}
    study = automl.fit(table(), "kind", metric=cost, n_trials=2, **arguments)
    record = read_study(study.path)
    assert record.metric.name == "val_cost"
    assert study.model.threshold == pytest.approx(10 / 11)
    automl.fit(table(), "kind", metric=cost, n_trials=3, **arguments)
    assert len(study.trials()) == 3

    def other(y_true: Any, y_predicted: Any) -> float:
        return float((y_true != y_predicted).mean())

    other.__qualname__ = "cost"
    with pytest.raises(ConfigError, match=r"study.metric_parts.source"):
        automl.fit(table(), "kind", metric=other, n_trials=4, **arguments)
    with pytest.raises(ConfigError, match="is a function that a call from Python gave"):
        automl.fit(table(), "kind", n_trials=4, **arguments)
    assert main(["resume", "py", "n_trials=4"]) == 2
    assert "Use the same call with name='py', metric=cost" in capfd.readouterr().err


def test_an_estimator_gives_the_function_the_labels_of_y(folder: Path) -> None:
    frame = table()

    def share_right(y_true: Any, y_predicted: Any) -> float:
        assert set(y_true) == {"ill", "well"}
        return float((y_true == y_predicted).mean())

    few = (*FEW[:2], "execution=inline", "pruner=none")
    model = automl.sklearn.Classifier(
        metric=share_right, direction="maximize", n_trials=1, families=["linear"], overrides=few
    )
    model.fit(frame[["a", "b", "c"]], frame.kind)
    assert 0.6 < model.leaderboard_.value.iloc[0] < 1
    assert model.leaderboard_.value.iloc[0] == pytest.approx(1 - model.leaderboard_.error.iloc[0])


def test_a_plan_tells_the_families_that_such_a_metric_judges(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("table=kinds.csv", "target=kind", "metric=costs.py:cost", "timing_seconds=0")
    assert main(["plan", *words, *FEW, "n_trials=2", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert [family["family"] for family in answer["families"]] == ["linear", "trees"]


def test_only_a_table_has_a_metric_that_is_a_function() -> None:
    study = StudyConfig(metric="group:loss")
    own = Config(study=study, objective=ObjectiveConfig(ObjectiveKind.python, target="m:train"))
    assert own.study.leading_metric == "group:loss", "the name of a metric that is reported"
    named = Config(study=StudyConfig(metric=["costs:mine", "train_seconds"])).study
    assert named.metric == ["val_mine", "train_seconds"]
    assert named.users_metric == "mine"
