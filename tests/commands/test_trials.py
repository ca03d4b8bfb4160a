"""`trials`: the table of all trials, as text and as a file."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from automl.cli import main
from automl.trial import FailedOutcome, TrialStarted
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
