"""Answers for programs: one JSON object on stdout, with the keys that the manual names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from automl.cli import main
from automl.record.event_log import EventLog
from automl.terminal.view import SweepView, write_view
from automl.trial import (
    EnsembleBuilt,
    FinishedOutcome,
    SweepEnded,
    SweepStarted,
    TrialStarted,
    TrialState,
)
from tests.report.studies import searched, write_study

MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "json.md"


def documented(part: str) -> dict[str, Any]:
    """The example of the manual that has this text."""
    blocks = re.findall(r"```json\n(.*?)\n```", MANUAL.read_text("utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if part in block)
    plain: dict[str, Any] = json.loads(found)
    return plain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two studies."""
    for name in ("first", "second"):
        study = write_study(tmp_path / "studies" / name, searched(20))
        (study / "lock").touch()
        view = SweepView(name, str(study), 1.0, 20, "val_loss", {"finished": 20}, ended="done")
        write_view(study / "status.json", view)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code
    (line,) = capsys.readouterr().out.splitlines()
    plain: dict[str, Any] = json.loads(line)
    return plain


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["status", "study.name=first"], "n_undelivered"),
        (["status", "study.name=first", "trial=3"], '"curve"'),
        (["list"], "age_seconds"),
        (["devices", "devices.only=cpu"], "cuda_number"),
        (["compare", "first", "second"], '"sentences"'),
        (["trials", "study.name=first"], '"trials": [{"trial": 7'),
        (["report", "study.name=first"], '"page": "studies/first/report.html"'),
        (["--help"], '"commands"'),
        (["--cfg", "job"], '"config"'),
    ],
)
def test_an_answer_has_the_keys_that_the_manual_names(
    words: list[str], part: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, wanted = answer(capsys, *words), documented(part)
    assert wanted.keys() <= found.keys()
    for key, value in wanted.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            wanted_keys = {name for name in value[0] if not name.startswith("params.")}
            assert wanted_keys <= found[key][0].keys()


def test_a_study_that_only_time_ends_tells_its_ensemble_and_the_time_of_all_sweeps(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(folder / "studies" / "any", [])
    (study / "lock").touch()
    (study / "ensemble.pt").touch()
    settings = {"study.metric": "val_loss", "model": "auto", "study.n_trials": "100000"}
    with EventLog.open(study / "events.log") as log:
        log.append(SweepStarted(100.0, "any", "u", settings, loading_seconds=3.0))
        for number, family in enumerate(("mlp", "trees")):
            log.append(TrialStarted(number, 101.0, {"family": family}, "cpu"))
            log.append(FinishedOutcome(number, 130.0, 0.5 + number))
        log.append(SweepStarted(200.0, "any", "u", settings, loading_seconds=4.0))
        log.append(EnsembleBuilt(207.0, 1000, {0: 0.75, 1: 0.25}, {"loss": 0.25}, {}))
        log.append(SweepEnded(207.0, True, {TrialState.FINISHED: 2}, 0, 0.5))
    found = answer(capsys, "status", "any")
    assert found["n_trials"] is None
    assert (found["seconds"], found["earlier_seconds"]) == (11.0, 33.0)
    families = [
        {"name": "mlp", "best": 0.5, "weight": 0.75},
        {"name": "trees", "best": 1.5, "weight": 0.25},
    ]
    expected = {"metric": "loss", "value": 0.25, "n_models": 2, "families": families}
    assert found["ensemble"] == expected
    assert main(["status", "any"]) == 0
    assert "any  11 s; 33 s in earlier sweeps\n" in capsys.readouterr().out


def test_an_error_is_an_object_with_the_rule_the_value_and_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "status", "study.name=other", code=2)
    assert documented('"error"').keys() == found.keys()
    error = found["error"]
    assert (error["setting"], error["value"], found["exit_code"]) == ("study.name", "other", 2)
    assert "there are: first, second" in error["rule"]


def test_a_trial_that_there_is_not_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "status", "study.name=first", "trial=99", code=2)
    assert "has no trial of this number; it has 20" in found["error"]["rule"]


def test_a_comparison_needs_two_studies_that_are_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "name two studies or more" in answer(capsys, "compare", "first", code=2)["error"]["rule"]
    assert "first" in answer(capsys, "compare", "first", "none", code=2)["error"]["message"]
    again = answer(capsys, "compare", "first", "first", code=2)
    assert "names a study twice" in again["error"]["rule"]


def test_a_sweep_ends_with_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study.name=new", "study.n_trials=2", "training.epochs=1", "tracking.uri=none"]
    found = answer(capsys, *words, "execution=inline", "devices.only=cpu")
    assert documented('"report"').keys() <= found.keys()
    assert found["ended"] == "done"
    assert Path(found["report"]).exists()
