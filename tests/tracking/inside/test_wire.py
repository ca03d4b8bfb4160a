"""What a trial's other processes log through MLflow: to the process that carries the trial out."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.logged_values import TrialLogReceiver
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import TrialContext
from automl.objectives.program.command_session import CommandSession
from automl.objectives.program.program_flags import CommandSetup
from automl.tracking.inside.process import InsideConfig
from automl.tracking.inside.running_trials import (
    LOG_ADDRESS_VARIABLE,
    NoTrialError,
    RemoteTrialSide,
    register_trial_of_thread,
    serve_trial,
)
from automl.trial import Direction, LoggedPoint, ProcessEntry, TrialSpec
from tests.places import ON_HOST
from tests.plugins import write_entry_points
from tests.tracking.inside.conftest import Trainer, Trial

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sockets of Linux")
POINT = LoggedPoint("loss", 0.5, 3, 17)


def side_of(trial: Trial, folder: Path) -> TrialLogReceiver:
    spec = TrialSpec(7, {"lr": 0.01}, str(folder / "trial-00007"), 0)
    return TrialLogReceiver(
        TrialReports(spec, StudyGoal("val_loss", Direction.minimize), trial, 60.0)
    )


def test_a_call_is_taken_when_it_returns(tmp_path: Path) -> None:
    trial = Trial()
    with register_trial_of_thread(side_of(trial, tmp_path)) as here, serve_trial(here) as address:
        assert address is not None
        with closing(RemoteTrialSide(address)) as far:
            assert (far.number, far.params) == (7, {"lr": 0.01})
            assert far.folder == tmp_path / "trial-00007" / "artifacts"
            far.log([POINT], {"batch": "8"}, {"by": "ann"})
            assert trial.points == [("loss", 3, 0.5)]
            far.log([POINT._replace(name="val_loss")])
    assert (trial.params, trial.tags) == ({"batch": "8"}, {"by": "ann"})
    assert trial.reports == [(3, {"val_loss": 0.5})]


def test_nothing_is_taken_after_the_trials_end(tmp_path: Path) -> None:
    trial = Trial()
    with register_trial_of_thread(side_of(trial, tmp_path)) as here, serve_trial(here) as address:
        assert address is not None
        far = RemoteTrialSide(address)
    with closing(far), pytest.raises(NoTrialError, match="the trial has ended"):
        far.log([POINT])
    with pytest.raises(NoTrialError, match="the trial has ended"):
        RemoteTrialSide(address)
    assert trial.events == []


def test_whoever_does_not_know_the_trial_logs_nothing(tmp_path: Path) -> None:
    trial = Trial()
    with register_trial_of_thread(side_of(trial, tmp_path)) as here, serve_trial(here) as address:
        assert address is not None
        name = address.partition(":")[0]
        with socket.socket(socket.AF_UNIX) as stranger, stranger.makefile("rwb") as lines:
            stranger.connect(f"\0{name}")
            for message in ({"trial": "7"}, {"points": [POINT], "params": {}, "tags": {}}):
                lines.write(json.dumps(message).encode() + b"\n")
                lines.flush()
            assert b"error" in lines.readline()
        with pytest.raises(NoTrialError):
            RemoteTrialSide(f"{name}:7")
    assert trial.events == []


def test_a_process_that_was_forked_logs_to_its_trial(trainer: Trainer) -> None:
    """And never by the pipe of the process that it was forked from."""

    def train(trial: TrialContext) -> float:
        import mlflow

        with mlflow.start_run():
            mlflow.log_metric("here", 1.0)
            child = multiprocessing.get_context("fork").Process(target=_log_there)
            child.start()
            child.join()
            assert child.exitcode == 0
        return 1.0

    trial = trainer.run(train)
    assert trial.points == [("here", 0, 1.0), ("there", 0, 2.0)]


def _log_there() -> None:
    import mlflow

    with mlflow.start_run(nested=True):
        mlflow.log_metric("there", 2.0)


SCRIPT = """
import sys, mlflow
with mlflow.start_run():
    mlflow.log_param("batch", 8)
    mlflow.log_param("lr", float(sys.argv[1].partition("=")[2]))
    for epoch in range(3):
        mlflow.log_metrics({"val_loss": 3.0 - epoch, "train_loss": 1.0}, step=epoch)
    mlflow.log_text("all of it", "notes/it.txt")
"""


def test_a_program_as_objective_logs_to_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    installed = write_entry_points(tmp_path / "installed")
    monkeypatch.setenv("PYTHONPATH", f"{installed}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.delenv(LOG_ADDRESS_VARIABLE, raising=False)
    setup = CommandSetup(
        command=f"{shlex.quote(sys.executable)} script.py",
        pattern=None,
        metric="val_loss",
        direction=Direction.minimize,
        grace_seconds=5.0,
        inside=ProcessEntry("automl.tracking.inside.process:open_inside", InsideConfig()),
    )
    trial = Trial()
    spec = TrialSpec(0, {"lr": 0.01}, str(tmp_path / "trial-00000"), 0)
    session = CommandSession(setup)
    session.run(spec, ON_HOST, trial)
    for keeper in session._keepers:  # which end with a worker
        keeper.close()
    assert trial.value == 1.0
    assert trial.reports == [(0, {"val_loss": 3.0}), (1, {"val_loss": 2.0}), (2, {"val_loss": 1.0})]
    assert trial.params == {"batch": "8"}
    best = json.loads((tmp_path / "trial-00000/best.json").read_text())
    assert (best["step"], best["value"]) == (2, 1.0), "known when it goes on"
    assert (tmp_path / "trial-00000/artifacts/notes/it.txt").read_text() == "all of it"
    assert not (tmp_path / "mlflow.db").exists()
