"""What all integrations have in common, and one whose library is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import automl
from automl.integrations.reports import LibraryReports, metrics_by_name
from automl.measure.survey.survey_result import InconclusiveSurvey
from automl.measure.survey.survey_run import survey_objective
from tests.models.conftest import make_spec

NAMES = ("lightgbm", "lightning", "skorch", "transformers", "xgboost")
LOOK = f"""
import sys
import automl
for name in {NAMES}:
    sys.modules[name] = None
    try:
        getattr(automl.integrations, name)
    except ModuleNotFoundError as error:
        print(error)
"""


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == [
        f"automl.integrations.{name} needs a module that is not installed: {name}. "
        f"Install it: pip install 'automl-sweep[{name}]'"
        for name in NAMES
    ]


def test_another_name_is_no_integration() -> None:
    with pytest.raises(AttributeError, match="no attribute 'keras'"):
        automl.integrations.keras  # type: ignore[attr-defined]  # noqa: B018


def test_a_metric_of_one_set_that_is_not_trained_on_needs_no_set_named() -> None:
    found = metrics_by_name([("train", "auc", 0.9), ("a", "auc", 0.8), ("a", "loss", 1.0)])
    assert found == {"train-auc": 0.9, "a-auc": 0.8, "a-loss": 1.0, "auc": 0.8, "loss": 1.0}
    both = metrics_by_name([("a", "auc", 0.8), ("b", "auc", 0.7)])
    assert both == {"a-auc": 0.8, "b-auc": 0.7}


def test_a_survey_of_what_computes_nothing_misses_no_metric(tmp_path: Path) -> None:
    told: list[str] = []

    def train(trial: automl.TrialContext) -> None:
        LibraryReports(trial, ["val_loss"]).tell(0, {})
        told.append("val_loss")

    survey = survey_objective(train, make_spec(tmp_path), "val_loss")
    assert survey == InconclusiveSurvey("it put nothing on the GPU")
    assert told
