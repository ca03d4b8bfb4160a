"""`status`: how the sweep of a study stands, seen from another process."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.commands.command_call import CommandCall
from automl.commands.status import print_status, run
from automl.record.event_log import EventLog
from automl.record.study_directory import StudyDirectory
from automl.record.study_record import record_from_events
from automl.terminal.study_view import StudyStatus, recorded_view
from automl.terminal.view import (
    BestRow,
    DeviceRow,
    FailureRow,
    RunningRow,
    WaitingRow,
    write_view,
)
from automl.trial import (
    EnsembleBuilt,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    StudyEdited,
    SweepEnded,
    SweepStarted,
    TrialStarted,
)
from tests.commands.conftest import config
from tests.places import placed
from tests.terminal.test_view import VIEW


def test_a_dead_sweep_is_told_apart(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    assert run(CommandCall(config(study.parent))) == 0
    said = capsys.readouterr().out
    assert "8/20" in said
    assert "interrupted" in said.splitlines()[-1]
    assert "python -m automl resume brave-otter" in said


def test_a_living_sweep_is_not(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    with StudyDirectory.open(config(study.parent, study.name).study, must_exist=True):
        assert run(CommandCall(config(study.parent))) == 0
    assert "resume" not in capsys.readouterr().out


def test_the_node_of_each_device_and_trial_is_named(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = RunningRow(8, placed("node-b/host", 0).label, {"depth": 4}, 12.5, 3, {"val_loss": 1})
    hosts = (DeviceRow("host", "cpu", 2**34, node="node-a"), DeviceRow("host", "cpu", 2**34))
    view = replace(VIEW, time=time.time(), running=(running,), devices=hosts)
    write_view(study / "status.json", view)
    with StudyDirectory.open(config(study.parent, study.name).study, must_exist=True):
        assert run(CommandCall(config(study.parent))) == 0
    said = capsys.readouterr().out
    assert "\ncpu host of node-a  " in said
    assert "\n8      cpu of node-b  12 s  3     val_loss 1" in said


def test_an_ended_sweep_says_how(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time(), ended="done"))
    assert run(CommandCall(config(study.parent))) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("done, ")


EVENTS = (
    SweepStarted(0.0, "brave-otter", "u", {"study.metric": "val_loss"}),
    TrialStarted(8, 1.0, {"depth": 4}, "cpu"),
    TrialStarted(9, 1.0, {"depth": 5}, "cpu"),
    TrialStarted(10, 1.0, {"depth": 6}, "cpu"),
    MetricsReported(8, 2.0, 1, {"val_loss": 0.02}),
    FinishedOutcome(8, 3.0, 0.02),
    FailedOutcome(10, 3.0, "no table"),
)
RECORD = record_from_events(EVENTS)


def test_a_killed_sweep_is_told_to_its_last_event(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    with EventLog.open(study / "events.log") as log:
        for event in EVENTS:
            log.append(event)
    assert run(CommandCall(config(study.parent))) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2/20 1 finished 1 failed 1 interrupted best val_loss 0.02 by trial 8" in said
    assert "running" not in said
    assert "1 time no table (first trial 10)" in said


@pytest.mark.parametrize("damage", ["one bit", "torn", "gone"])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_lost_or_damaged_view_is_named_and_the_log_tells_the_rest(
    study: Path, capsys: pytest.CaptureFixture[str], damage: str, is_over: bool
) -> None:
    status = study / "status.json"
    write_view(status, replace(VIEW, time=time.time()))
    settings = {"study.metric": "val_loss", "study.n_trials": "30"}
    edited = StudyEdited(0.5, "1-a", "ada", 3, {}, {"study.n_trials": "40"}, "{}", "{}")
    ended = SweepEnded(9.0, True, {}, 8, 0.02, reason="all combinations were tried")
    with EventLog.open(study / "events.log") as log:
        log.append(replace(EVENTS[0], settings=settings))
        for event in (edited, *EVENTS[1:], *((ended,) if is_over else ())):
            log.append(event)
    if damage == "gone":
        status.unlink()
    else:
        text = status.read_text()
        status.write_text(
            text.replace('"n_trials": 20', '"n_trials": 60') if damage == "one bit" else text[:99]
        )
    assert run(CommandCall(config(study.parent))) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("status.json cannot be read" in said) == (damage != "gone")
    assert "2/40 1 finished 1 failed 1 interrupted best val_loss 0.02 by trial 8" in said
    assert ("resume brave-otter" in said) != is_over


def test_an_ended_study_names_its_ensemble(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time(), ended="done"))
    settings = {"study.metric": "val_loss", "model": "auto"}
    with EventLog.open(study / "events.log") as log:
        log.append(SweepStarted(0.0, "brave-otter", "u", settings))
        for number, family in enumerate(("mlp", "trees", "mlp")):
            log.append(TrialStarted(number, 1.0, {"family": family}, "cpu"))
            log.append(MetricsReported(number, 2.0, 0, {"val_loss": 0.5}))
            log.append(FinishedOutcome(number, 3.0, 0.5))
        weights = {0: 0.5, 1: 0.3, 2: 0.2}
        log.append(EnsembleBuilt(9.0, 1000, weights, {"loss": 0.25}, {}))

    def said() -> str:
        assert run(CommandCall(config(study.parent))) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "ensemble of" not in said(), "its file is no longer there"
    (study / "ensemble.pt").touch()
    assert "ensemble of 3 models (2 mlp, 1 trees): loss 0.25 on 1,000 rows" in said()
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    assert "ensemble of" not in said(), "it goes on, and comes to another"


def test_what_ended_since_the_picture_was_written_is_told() -> None:
    view = recorded_view(VIEW, RECORD, is_swept=True)
    assert view.running == (), "trial 8 has ended"
    assert {state: n for state, n in view.counts.items() if n} == {
        "waiting": 1,
        "finished": 1,
        "failed": 1,
    }, "trial 9 waits, as the view has it"
    assert view.best == BestRow(8, 0.02, {"depth": 4})
    assert view.failures == (FailureRow(1, "no table", 10),)
    assert view.best_so_far == (0.02, 0.02)
    assert view.device_seconds == 2.0, "three trials side by side, from 1 to 3"


def test_what_ran_and_waited_when_a_sweep_was_killed_is_interrupted() -> None:
    waits = WaitingRow(11, "waiting: 3.0 GiB asked")  # never started
    left = RECORD.as_left(9.0)
    delivered = replace(VIEW, waiting=(waits,), seconds=99.0)  # MLflow took long after the end
    view = recorded_view(delivered, left, is_swept=False)
    called, last = left.sweeps[-1].called_span
    assert view.seconds == last - called, "the same as it counts for the next sweep"
    assert (view.running, view.waiting, view.ended) == ((), (), "interrupted")
    assert view.counts["interrupted"] == 1, "trial 11 is in no other answer"
    assert view.counts["running"] == 0


def test_what_a_stranger_wrote_is_neither_markup_nor_an_order_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = BestRow(3, 0.5, {"how": "[/b] :smile: \x1b[2J"})
    row = RunningRow(1, "cpu", odd.params, 12.0, None, {})
    view = replace(VIEW, metric="[bold]loss", best=odd, running=(row,))
    print_status(StudyStatus(view, at_work=True), None)
    shown = capsys.readouterr().out
    assert shown.count("how [/b] :smile: �[") == 2
    assert "[bold]loss" in shown
    assert "\x1b" not in shown
