"""Scores on the runs of trials and study: once, the newest ones, and again when all is rebuilt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.trial import ModelsEvaluated, RowsKind, ScoreDifference, ScoreInterval
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver, delivery
from tests.tracking.scenes import BEGUN, NAME, begin, sweep_ended, sweep_started, trial, write

EVENT = ModelsEvaluated(
    BEGUN + 1000,
    RowsKind.KEPT,
    n_rows=1234,
    digest="ab",
    trials=(1, 0),
    scores={
        "trial-00001": {
            "loss": ScoreInterval(0.25, 0.2, 0.3),
            "error": ScoreInterval(0.1, 0.05, 0.15),
        },
        "trial-00000": {
            "loss": ScoreInterval(0.5, 0.4, 0.6),
            "error": ScoreInterval(0.2, 0.1, 0.3),
        },
        "linear": {"loss": ScoreInterval(0.75, 0.7, 0.8), "error": ScoreInterval(0.3, 0.2, 0.4)},
    },
    differences={
        "trial-00000": {"loss": ScoreDifference(0.25, 0.2, 0.3, "worse")},
        "linear": {"loss": ScoreDifference(0.5, 0.4, 0.6, "worse")},
    },
)
SWEEP = (sweep_started(), *trial(0), *trial(1), sweep_ended(2))


def metrics_of(shown: Shown, name: str) -> dict[str, float]:
    found = shown.run(name).data.metrics
    return {key: value for key, value in found.items() if key.startswith(("test_", "validation_"))}


def is_shown(shown: Shown) -> None:
    assert metrics_of(shown, "trial-00000") == {
        "test_loss": 0.5,
        "test_loss_low": 0.4,
        "test_loss_high": 0.6,
        "test_error": 0.2,
        "test_error_low": 0.1,
        "test_error_high": 0.3,
    }
    parent = metrics_of(shown, NAME)
    assert parent == metrics_of(shown, "trial-00001") | {
        "test_loss_linear": 0.75,
        "test_error_linear": 0.3,
    }
    tag = shown.run("trial-00000").data.tags["automl.evaluated"]
    assert tag == ("1,234 rows no sweep saw\nagainst trial-00001: loss +0.25 (+0.2 to +0.3; worse)")
    said = shown.run(NAME).data.tags["automl.evaluated"].splitlines()
    assert said[0] == "trial-00001 on 1,234 rows no sweep saw"
    assert said[2] == "linear against it: loss +0.5 (+0.4 to +0.6; worse)"
    assert shown.history("trial-00000", "test_loss") == [(0, (int(BEGUN) + 1000) * 1000, 0.5)]


def test_scores_stand_on_the_runs_and_change_nothing_else(study: Path, shown: Shown) -> None:
    write(study, *SWEEP)
    deliver(study)
    before = {run.info.run_name: run.info for run in shown.runs()}
    write(study, EVENT)
    assert deliver(study) == []
    is_shown(shown)
    for run in shown.runs():
        was = before[run.info.run_name]
        assert (run.info.status, run.info.end_time) == (was.status, was.end_time)


def test_they_come_with_runs_that_are_made_anew(study: Path, folder: Path, shown: Shown) -> None:
    write(study, *SWEEP, EVENT)
    (study / "events.delivered").unlink(missing_ok=True)
    assert deliver(study) == []
    is_shown(shown)


def test_what_is_delivered_again_stands_there_once(study: Path, shown: Shown) -> None:
    write(study, *SWEEP, EVENT)
    for _ in range(2):
        assert deliver(study) == []
        (study / "events.delivered").unlink()
    is_shown(shown)


def test_the_newest_scores_are_shown(study: Path, shown: Shown) -> None:
    later = replace(
        EVENT, time=BEGUN + 2000, scores={"trial-00001": {"loss": ScoreInterval(0.125, 0, 1)}}
    )
    write(study, *SWEEP, EVENT, replace(later, trials=(1,), differences={}))
    deliver(study)
    assert metrics_of(shown, "trial-00001")["test_loss"] == 0.125
    assert metrics_of(shown, NAME)["test_loss"] == 0.125
    assert metrics_of(shown, "trial-00000")["test_loss"] == 0.5


def test_rows_that_chose_are_called_so(study: Path, shown: Shown) -> None:
    write(study, *SWEEP, replace(EVENT, kind=RowsKind.VALIDATION))
    deliver(study)
    assert metrics_of(shown, "trial-00001")["validation_loss"] == 0.25
    assert not [key for key in metrics_of(shown, NAME) if key.startswith("test_")]


def test_a_trial_that_is_none_has_no_run(study: Path, shown: Shown) -> None:
    write(study, *SWEEP, replace(EVENT, trials=(1, 7)))
    assert deliver(study) == []
    assert len(shown.runs()) == 3
    assert metrics_of(shown, "trial-00001")["test_loss"] == 0.25


def test_scores_that_mlflow_does_not_take_now_are_delivered_later(
    study: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run deleted in the UI is restored, as for any other event."""
    write(study, *SWEEP)
    deliver(study)
    shown.client.delete_run(shown.run("trial-00000").info.run_id)
    write(study, EVENT)
    with delivery(study) as delivering:
        delivering.read()
        delivering.deliver()
        assert delivering.offset == (study / "events.log").stat().st_size
    is_shown(shown)


def test_a_trial_that_still_runs_keeps_its_state(study: Path, shown: Shown) -> None:
    write(study, *SWEEP, begin(2), EVENT)
    deliver(study)
    is_shown(shown)
    assert shown.run("trial-00002").info.status == "RUNNING"
