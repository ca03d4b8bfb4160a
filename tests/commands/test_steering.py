"""Commands that ask a study's sweep, where none works: what is refused, and what waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automl.commands.command_call import CommandCall
from automl.commands.list import run as list_studies
from automl.commands.steering import enqueue, pause, stop
from automl.config import Config, ObjectiveConfig, ObjectiveKind
from automl.config.command_arguments import EnqueueArguments, StopArguments
from automl.errors import AutoMLError, ConfigError
from automl.record.study_directory import StudyDirectory
from automl.record.study_requests import FolderRequestQueue
from automl.terminal.view import write_view
from automl.trial import FinishedOutcome, ParamsSuggested, SweepStarted, TrialStarted
from tests.commands.conftest import config
from tests.terminal.test_view import VIEW
from tests.tracking.scenes import write

SPACE = {"lr": {"low": 0.0, "high": 1.0}, "opt": {"choices": ["sgd", "adam"]}}


def of_study(study: Path, **parts: Any) -> Config:
    return replace(config(study.parent, study.name), space=SPACE, **parts)


def points(study: Path) -> list[Any]:
    return [request.arguments["points"] for request in FolderRequestQueue(study).pending()]


def test_points_wait_for_the_next_sweep(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = EnqueueArguments(params={"lr": 0.5})
    assert enqueue(CommandCall(of_study(study), arguments=given)) == 0
    assert points(study) == [[{"lr": 0.5}]]
    assert f"automl resume {study.name}" in capsys.readouterr().out


def test_the_total_has_room_for_all_points_that_wait(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that the last answer names tries all of them."""
    of_two = replace(of_study(study), study=replace(of_study(study).study, n_trials=2))
    write(study, *(TrialStarted(n, 1.0, {"lr": 0.5}, "cpu") for n in range(2)))
    for n_points in (1, 2, 3):
        enqueue(CommandCall(of_two, arguments=EnqueueArguments(params={"lr": 0.5})))
        assert f" n_trials={2 + n_points}\n" in capsys.readouterr().out


def test_a_study_that_is_called_goes_on_by_its_call(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"objective.kind": "called", "objective.file": "a.py"}
    start = SweepStarted(1.0, study.name, "u", settings)
    write(study, start, TrialStarted(0, 1.0, {"lr": 0.5}, "cpu"))
    named = replace(of_study(study), study=replace(of_study(study).study, n_trials=1))
    enqueue(CommandCall(named, arguments=EnqueueArguments(params={"lr": 0.5})))
    call = f"the same call with name='{study.name}'"
    assert f"{call}, n_trials=2, in a.py\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=f"it goes on with {call}, in a.py$"):
        pause(CommandCall(named))


def test_points_of_a_file_may_leave_params_out(study: Path, tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("lr,opt\n0.5,sgd\n1e-3,\n")
    enqueue(CommandCall(of_study(study), arguments=EnqueueArguments(from_=str(file))))
    assert points(study) == [[{"lr": 0.5, "opt": "sgd"}, {"lr": 0.001}]]


def test_a_point_of_an_objective_that_asks_is_checked_by_what_it_asked_for(study: Path) -> None:
    entry = {"low": 0.1, "high": 0.5}
    asked = ParamsSuggested(0, 1.0, {"lr": 0.2}, {"lr": entry})
    write(study, TrialStarted(0, 1.0, {}, "cpu"), asked, FinishedOutcome(0, 2.0, 0.5))
    optunas = ObjectiveConfig(kind=ObjectiveKind.optuna, target="a:b")
    asking = replace(of_study(study, objective=optunas), space={})

    def ask_for(**given: Any) -> None:
        enqueue(CommandCall(asking, arguments=EnqueueArguments(**given)))

    with pytest.raises(ConfigError, match=r"^params\.lr=0\.9: must be numbers 0\.1\.\.0\.5"):
        ask_for(params={"lr": 0.9})
    with pytest.raises(ConfigError, match=r"^outside=true: the objective gives each range itself"):
        ask_for(params={"lr": 0.9}, outside=True)
    assert points(study) == []
    ask_for(params={"lr": 0.3, "new": 1})
    assert points(study) == [[{"lr": 0.3, "new": 1}]]


def test_a_table_of_trials_is_a_file_of_points(study: Path, tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    file.write_text("trial,state,value,params.lr,params.opt\n3,finished,0.25,0.5,adam\n")
    enqueue(CommandCall(of_study(study), arguments=EnqueueArguments(from_=str(file))))
    assert points(study) == [[{"lr": 0.5, "opt": "adam"}]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (EnqueueArguments(), "needs a point"),
        (EnqueueArguments(params={"lr": 2.0}), r"lr=2\.0: must be .* outside=true"),
        (EnqueueArguments(params={"lrr": 0.5}), "lrr: no such param in the space"),
        (EnqueueArguments(params={"lrr": 0.5}, outside=True), "lrr: no such param in the space"),
        (EnqueueArguments(from_="nowhere.csv"), "nowhere.csv cannot be read"),
    ],
)
def test_points_that_cannot_be_tried_are_refused(
    study: Path, given: EnqueueArguments, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        enqueue(CommandCall(of_study(study), arguments=given))
    assert points(study) == []


def test_where_no_sweep_works_there_is_nothing_to_stop_or_to_pause(study: Path) -> None:
    for command in (stop, pause):
        with pytest.raises(ConfigError, match="no sweep works on study"):
            command(CommandCall(of_study(study)))
    assert FolderRequestQueue(study).pending() == []


def test_a_command_whose_sweep_ends_meanwhile_says_that_none_works(study: Path) -> None:
    named = of_study(study)
    directory = StudyDirectory.open(named.study, must_exist=True)

    def end_when_asked() -> None:
        while not FolderRequestQueue(study).pending():
            time.sleep(0.01)
        directory.__exit__(None, None, None)

    ending = threading.Thread(target=end_when_asked)
    ending.start()
    with pytest.raises(ConfigError, match="no sweep works on study"):
        pause(CommandCall(named))
    ending.join(60)


def test_a_trial_that_has_ended_is_not_stopped_whoever_holds_the_study(study: Path) -> None:
    write(study, TrialStarted(0, 1.0, {}, "cpu"), FinishedOutcome(0, 2.0, 0.5))
    named = of_study(study)
    with (
        StudyDirectory.open(named.study, must_exist=True),  # a sweep that delivers to MLflow
        pytest.raises(ConfigError, match=r"^trial=0: it has ended \(finished\)"),
    ):
        stop(CommandCall(named, arguments=StopArguments(trial=0)))
    assert FolderRequestQueue(study).pending() == []


def test_a_sweep_that_is_suspended_is_named_and_nothing_waits_for_it(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = of_study(study)
    write_view(study / "status.json", VIEW)
    holds = (
        "import os, signal, sys; from automl.config import StudyConfig; "
        "from automl.record.study_directory import StudyDirectory; "
        "d = StudyDirectory.open(StudyConfig(name=sys.argv[1], dir=sys.argv[2]), must_exist=True); "
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    words = [sys.executable, "-c", holds, study.name, str(study.parent)]
    with subprocess.Popen(words) as holder:
        try:
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(AutoMLError, match=rf"kill -CONT {holder.pid}, then ask again"):
                pause(CommandCall(named))
            assert list_studies(CommandCall(named)) == 0
        finally:
            holder.kill()
    assert FolderRequestQueue(study).pending() == [], "it must not be done when the sweep wakes"
    assert "suspended" in capsys.readouterr().out


def test_a_trial_is_stopped_by_the_next_sweep_if_it_has_not_ended(study: Path) -> None:
    write(study, TrialStarted(0, 1.0, {}, "cpu"), FinishedOutcome(0, 2.0, 0.5))
    with pytest.raises(ConfigError, match=r"^trial=0: it has ended \(finished\)"):
        stop(CommandCall(of_study(study), arguments=StopArguments(trial=0)))
    with pytest.raises(ConfigError, match=r"^trial=99: there is no such trial"):
        stop(CommandCall(of_study(study), arguments=StopArguments(trial=99)))
    assert stop(CommandCall(of_study(study), arguments=StopArguments(trial=1))) == 0
    (request,) = FolderRequestQueue(study).pending()
    assert (request.kind, request.arguments) == ("stop", {"trial": 1, "as": "pruned"})
