"""A study of several metrics, as its user sees it: sweep, status, trials, report, `which=`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from automl.cli import main
from automl.commands.models.which_model import choose_winner
from automl.config import Config, StudyConfig
from automl.config.which_models import parse_which
from automl.errors import ConfigError
from automl.record.studies import read_study
from automl.record.trial_record import TrialRecord
from automl.trial import Event, FinishedOutcome, MetricsReported, PrunedOutcome, TrialStarted
from tests.report.studies import BEGUN, SETTINGS, write_study

TWO = SETTINGS | {"study.metric": "err, acc", "study.direction": "minimize, maximize"}
LIMITED = TWO | {"study.constraints.bytes": "1KiB"}
TRIALS = [(1, 0.1, 9), (3, 0.8, 9), (9, 0.9, 9), (4, 0.7, 9), (0.5, 0.95, 5000)]
"""Error, accuracy and bytes: 0, 1 and 2 are the front, 3 is worse than 1, 4 is too large."""


def events() -> list[Event]:
    found: list[Event] = []
    for number, (err, acc, size) in enumerate(TRIALS):
        values = {"err": float(err), "acc": acc, "bytes": float(size)}
        found.append(TrialStarted(number, BEGUN + number, {"lr": 0.01 * (number + 1)}, "cpu"))
        found.append(MetricsReported(number, BEGUN + number, 0, values))
        found.append(FinishedOutcome(number, BEGUN + number + 1, float(err), (), values))
    found.append(TrialStarted(5, BEGUN + 6, {"lr": 0.5}, "cpu"))
    found.append(PrunedOutcome(5, BEGUN + 7, 0, 0.1, {"err": 0.1, "acc": 1.0, "bytes": 9.0}))
    return found


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_study(tmp_path / "studies" / "first", events(), LIMITED)


def winner(which: str) -> int:
    """Return the trial that `refit` trains again."""
    config = Config(study=StudyConfig(name="first"))
    found = choose_winner(config, parse_which(which), "refit")[1]
    assert isinstance(found, TrialRecord)
    return found.number


def test_the_front_is_what_no_finished_trial_within_the_limits_beats(study: Path) -> None:
    record = read_study(study)
    assert [trial.number for trial in record.front()] == [0, 1, 2]
    assert [trial.number for trial in record.ranking()][:3] == [1, 0, 2]
    assert record.ranking()[-1].number == 4


def test_the_table_has_a_column_for_each_metric(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trials", "study.name=first"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (rows[1]["values.err"], rows[1]["values.acc"]) == ("3.0", "0.8")


@pytest.mark.parametrize(
    ("which", "number"),
    [("knee", 1), ("best", 1), ("metric:err", 0), ("err", 0), ("acc", 2), ("3", 3), ("trial:3", 3)],
)
def test_which_names_a_trial(study: Path, which: str, number: int) -> None:
    assert winner(which) == number


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("metric:ms", "which=ms: study.metric names no ms: err, acc"),
        ("beste", "names no beste: err, acc. For other models write best"),
        ("9", "which=9: study first has no such trial"),
    ],
)
def test_what_names_no_trial_is_refused(study: Path, which: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        winner(which)


def test_a_front_without_a_trial_within_the_limits_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    narrow = LIMITED | {"study.constraints.bytes": "1"}
    write_study(tmp_path / "studies" / "first", events(), narrow)
    with pytest.raises(ConfigError, match=r"front is empty.*nearest \(bytes 9 > 1\).*which=1$"):
        winner("knee")
    assert winner("1") == 1


def test_the_report_draws_the_front_and_says_what_it_costs(study: Path) -> None:
    assert main(["report", "study.name=first"]) == 0
    page = (study / "report.html").read_text("utf-8")
    assert "3 of 5 finished trials are on the front" in page
    assert "trial 1, its knee, is a compromise: err 3, acc 0.8" in page
    assert "The best by each metric: trial 0 has err 1, " in page
    assert "1 of 6 trials exceed bytes 1024" in page
    assert '<path class="dots finished" data-n=' in page or 'data-n="0 1 ' in page


OBJECTIVE = """
def train(trial, x: float):
    for step in range(3):
        trial.report(step, {"err": x + 1 / (step + 1)})
    return {"err": x, "cost": 1 - x}
"""


@pytest.mark.slow
def test_a_sweep_of_two_metrics_goes_on_with_its_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(OBJECTIVE)
    words = ["objective=python", "objective.target=two.py:train", "study.name=two"]
    words += ["study.metric=[err,cost]", "study.constraints={cost: 0.9}", "tracking.uri=none"]
    words += ["space={x: {low: 0.0, high: 1.0}}", "pruner=none", "devices.only=cpu"]
    assert main([*words, "study.n_trials=4"]) == 0
    assert "trials are judged by err (minimize), cost (minimize) with cost ≤ 0.9" in (
        capsys.readouterr().out
    )
    assert main(["resume", "study.name=two", "study.n_trials=6"]) == 0
    capsys.readouterr()
    assert main(["status", "study.name=two", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    within = [t for t in read_study(Path("studies/two")).trials.values() if t.values["cost"] <= 0.9]
    assert {row["number"] for row in answer["front"]} == {trial.number for trial in within}
    assert all(set(row["values"]) == {"err", "cost"} for row in answer["front"])
