"""Which steps, metrics and tags a trial may tell, and parts of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.in_trial.trial_context import TrialInterrupted, TrialPruned
from automl.trial import (
    TrialTagged,
    Verdict,
)
from tests.in_trial.reporting import make_trial, stored, written
from tests.models.conftest import Listener
from tests.objectives.objectives import ONE_HALF


@pytest.mark.parametrize(
    "step", [-1, 1.0, True, "1", np.True_, np.float64(1), pytest.param(10**9_999, id="long")]
)
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    with pytest.raises(ValueError, match="a step is a whole number from 0"):
        trial.report(step, {"val_loss": 1.0})


@pytest.mark.parametrize("step", [2**53 + 1, 2**63, np.int64(2**60), torch.tensor(True)])
def test_a_step_is_one_that_every_store_can_hold(tmp_path: Path, step: Any) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    with pytest.raises(ValueError, match=r"from 0 to 9007199254740992 \(2\*\*53\)") as caught:
        trial.report(step, {"val_loss": 1.0})
    assert f"report(step={step!r})" in str(caught.value)
    assert listener.reports == []


def test_whole_numbers_of_other_libraries_are_steps(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for step in (np.int64(0), torch.tensor(1), np.uint8(2), 2**53):
        trial.report(step, {"val_loss": 1.0}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert [type(step) for step, _ in listener.reports] == [int] * 4
    assert [step for step, _ in listener.reports] == [0, 1, 2, 2**53]
    again, _ = make_trial(tmp_path, listener)
    state = again.restore()
    assert state is not None
    trial.report(state["epoch"], {"val_loss": 1.0})  # the same step as a plain number
    assert len(listener.reports) == 4 + 4  # told once, and repeated after the restore
    assert record.last_step == 2**53


def test_what_is_told_of_one_step_in_parts_is_one_report(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    trial.report(0, {"val_loss": 0.5, "train_loss": 0.9})
    assert listener.reports == [(0, {"train_loss": 0.9}), (0, {"val_loss": 0.5})]
    assert (record.n_reports, record.best_value) == (1, 0.5)
    whole = {"train_loss": 0.9, "val_loss": 0.5}
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}  # the first part brought it
    assert stored(tmp_path, "best.pt")["metrics"] == whole
    assert stored(tmp_path, "last.pt")["reports"] == {0: whole}


def test_a_later_part_may_bring_the_state(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    trial.report(0, {"val_loss": 0.5})
    trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    trial.report(0, {"lr": 0.1})
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}
    assert written(listener)[:2] == [(0, "best"), (0, "last")]
    assert (0, "best") not in written(listener)[2:]


def test_a_late_part_of_an_earlier_step_leaves_the_newest_state(tmp_path: Path) -> None:
    trial, record = make_trial(tmp_path, Listener(), every_seconds=100)
    for step in range(2):
        trial.report(step, {"train_loss": 1.0}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    trial.report(0, {"val_loss": 0.5})
    record.write()
    last = stored(tmp_path, "last.pt")
    assert (last["step"], last["state"]) == (1, {"epoch": 1})
    assert record.best_value == 0.5


def test_of_a_metric_that_is_told_twice_the_first_counts_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for value in (0.5, 0.5, 0.1, 0.2):
        trial.report(3, {"val_loss": value})
    assert listener.reports == [(3, {"val_loss": 0.5})]
    assert record.best_value == 0.5
    assert [r.message for r in caplog.records] == [
        "trial 0: report(step=3) says val_loss again, and otherwise (0.5, then 0.1): the first "
        "counts. Count steps up."
    ]


def test_a_part_that_prunes_ends_the_trial_with_the_whole_report_written(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({0: Verdict.PRUNE}))
    with pytest.raises(TrialPruned):
        trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    assert stored(tmp_path, "last.pt")["reports"] == {0: {"train_loss": 0.9}}


def test_tags_are_told_once_and_again_when_they_change(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    for value in ("a", "a", 3, "a"):
        trial.set_tag("what", value)
    told = [(e.name, e.text) for e in listener.events if isinstance(e, TrialTagged)]
    assert told == [("what", "a"), ("what", "3"), ("what", "a")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("automl.state", "x", r"names that begin with automl\. or mlflow\. are taken"),
        ("", "x", "a tag's name is a string of 1 to 250"),
        (3, "x", "a tag's name is a string"),
        ("long", "x" * 5001, "its value has 5001 characters; give it at most 5000"),
    ],
)
def test_a_tag_that_cannot_be_is_refused(
    tmp_path: Path, name: Any, value: str, message: str
) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    with pytest.raises(ValueError, match=message):
        trial.set_tag(name, value)


def test_a_trial_has_a_bounded_number_of_tags(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    for number in range(100):
        trial.set_tag(f"tag {number}", number)
    trial.set_tag("tag 7", "again")
    with pytest.raises(ValueError, match="a trial has at most 100 tags"):
        trial.set_tag("one more", 1)


def test_a_verdict_on_a_tag_is_met_at_the_next_report(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, lambda event: Verdict.STOP)
    trial.set_tag("a", "b")
    with pytest.raises(TrialInterrupted):
        trial.report(0, {"val_loss": 1.0})


@pytest.mark.parametrize("value", ["0.5", None, [1.0, 2.0], True, torch.zeros(2), np.bool_(True)])
def test_a_metric_is_a_number(tmp_path: Path, value: Any) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    with pytest.raises(TypeError, match=r"'val_loss' is .*; a metric is a number"):
        trial.report(0, {"val_loss": value})
    assert listener.events == []


@pytest.mark.parametrize("value", ONE_HALF, ids=repr)
def test_a_metric_is_a_number_of_any_library(tmp_path: Path, value: Any) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    trial.report(0, {"val_loss": value})
    assert listener.reports == [(0, {"val_loss": 0.5})]


def test_a_metrics_name_is_bounded(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    trial.report(0, {"x" * 250: 1.0})
    with pytest.raises(ValueError, match=r"'xxx.* has 251 characters; give it at most 250"):
        trial.report(1, {"x" * 251: 1.0})
