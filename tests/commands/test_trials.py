"""`trials`: the table of all trials, as text and as a file."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import optuna
import pandas as pd
import pytest

import automl
from automl.cli import main
from automl.record.optuna_columns import optuna_columns, optuna_row
from automl.record.study_record import record_from_events
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    StudyMetric,
    StudyMetrics,
    SweepStarted,
    TrialStarted,
)
from tests.report.studies import BEGUN, searched, write_study


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    failed = [
        TrialStarted(5, BEGUN, {"lr": "none", "学习率": True}, "cpu"),
        FailedOutcome(5, BEGUN + 1, 'ValueError: "a", b'),
    ]
    return write_study(tmp_path / "studies" / "first", [*searched(5), *failed])


def test_the_table_is_printed_as_csv(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trials", "study.name=first"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 6
    assert rows[5]["cause"] == 'ValueError: "a", b'
    assert rows[5]["params.学习率"] == "True"


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_whole_numbers_stay_whole_beside_gaps(study: Path, kind: str) -> None:
    words = ["trials", "study.name=first", f"format={kind}", "to=t"]
    log = study / "events.log"
    assert main(words) == 0
    assert log.exists()
    content = Path("t").read_bytes()
    if kind == "parquet":
        frame = pd.read_parquet("t", dtype_backend="numpy_nullable")
        assert str(frame["best_step"].dtype) == "Int64"
    elif kind == "json":
        steps = [row["best_step"] for row in json.loads(content)]
        assert None in steps
        assert {type(step) for step in steps} == {int, type(None)}
    else:
        rows = list(csv.DictReader(io.StringIO(content.decode())))
        assert {row["best_step"].isdecimal() for row in rows if row["best_step"]} == {True}
        assert "" in {row["best_step"] for row in rows}


def test_the_table_is_a_list_in_json(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trials", "study.name=first", "format=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["trial"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert rows[5]["value"] is None


def test_params_of_several_types_fit_into_parquet(study: Path) -> None:
    words = ["trials", "study.name=first", "format=parquet", "to=t.parquet"]
    assert main(words) == 0
    frame = pd.read_parquet("t.parquet")
    assert len(frame) == 6
    assert frame["params.lr"].iloc[5] == "none"


def test_parquet_needs_a_file(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trials", "study.name=first", "format=parquet"]) == 2
    assert "format=parquet: is no text, so it needs to=FILE" in capsys.readouterr().err


def test_the_table_has_the_names_and_types_of_optunas_frame(study: Path) -> None:
    done = main(["report", "study.name=first", "to=t.parquet", "columns=optuna"])
    assert done == 0
    frame = pd.read_parquet("t.parquet").set_index("number")
    theirs = optuna_frame()
    known = [name for name in frame.columns if name in theirs.columns]
    assert [name for name in theirs.columns if name in frame.columns] == known
    assert {*known} >= {"value", "datetime_start", "datetime_complete", "duration", "state"}
    for name in ("datetime_start", "datetime_complete", "duration", "state", "value"):
        assert frame[name].dtype.kind == theirs[name].dtype.kind, name
    assert frame["state"].iloc[5] == "FAIL"
    assert frame["user_attrs_cause"].iloc[5] == 'ValueError: "a", b'
    assert frame["params_学习率"].notna().sum() == 1
    assert frame["datetime_start"].iloc[5].to_pydatetime() == datetime.fromtimestamp(BEGUN)


def optuna_frame() -> pd.DataFrame:
    """Optuna's own frame of a study with an attribute."""
    study = optuna.create_study()

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr("device", "cpu")
        return trial.suggest_float("lr", 0, 1)

    study.optimize(objective, n_trials=2)
    return study.trials_dataframe()


def test_columns_are_those_of_a_table(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "study.name=first", "columns=optuna"]) == 2
    assert "columns=optuna: a table has columns: write one, to=FILE.csv" in capsys.readouterr().err
    frame = automl.open_study("first").trials(columns="optuna")
    assert list(frame.columns[:2]) == ["number", "value"]
    with pytest.raises(automl.AutoMLError, match="columns=pandas: must be automl or optuna"):
        automl.open_study("first").trials(columns="pandas")


def test_several_metrics_have_a_column_each_and_no_trials_the_columns_that_all_have() -> None:
    metrics = StudyMetrics((StudyMetric("b"), StudyMetric("a")))
    events: list[Event] = [
        SweepStarted(
            0.0, "s", "u", {"study.metric": "b,a", "study.direction": "minimize,minimize"}
        ),
        TrialStarted(0, 1.0, {"z": 1, "y": 2}, "cpu"),
        FinishedOutcome(0, 2.0, 3.0, values={"b": 3.0, "a": 4.0}),
        TrialStarted(1, 1.0, {"y": 2}, "cpu"),
    ]
    trials = record_from_events(events).trials.values()
    rows = [optuna_row(trial, metrics) for trial in trials]
    assert optuna_columns(rows) == [
        *("number", "values_b", "values_a", "datetime_start", "datetime_complete", "duration"),
        *("params_y", "params_z", "user_attrs_device", "state"),
    ]
    assert [(row["values_b"], row["state"]) for row in rows] == [
        (3.0, "COMPLETE"),
        (None, "RUNNING"),
    ]
    firsts = ["number", "value", "datetime_start", "datetime_complete", "duration", "state"]
    assert optuna_columns([]) == firsts
