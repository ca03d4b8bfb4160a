"""A survey in a process of its own: what it gives, what it may take, and that nothing is left."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import ObjectiveConfig, ObjectiveKind
from automl.data.dataset import Dataset
from automl.execution.child_calls import ProcessConfinement
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyEndReason, SurveyResult
from automl.models.families.python.family import PythonFamily
from automl.objectives.training_plan import SessionSetup
from automl.running.trials.surveyor import survey_trial
from automl.trial import Params, TrialSpec
from tests.fork_server import fork_server_with
from tests.models.conftest import disc as disc
from tests.models.conftest import make_plan, make_spec
from tests.processes import is_running
from tests.running.trials import surveyed_objectives

PATIENT = ProcessConfinement(seconds=90)
"""A machine with much else to do."""


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    fork_server_with()


def surveyed_as(
    name: str, folder: Path, params: Params | None = None, limits: ProcessConfinement = PATIENT
) -> SurveyResult | InconclusiveSurvey:
    objective = ObjectiveConfig(
        kind=ObjectiveKind.python, target=f"{surveyed_objectives.HERE}:{name}"
    )
    setup = SessionSetup(make_plan(objective=objective))
    return survey_trial(setup, make_spec(folder, params), limits)


def test_a_users_function_is_surveyed_and_leaves_no_file(tmp_path: Path) -> None:
    small, large = (surveyed_as("trains", tmp_path, {"width": w}) for w in (10, 1000))
    assert isinstance(small, SurveyResult)
    assert isinstance(large, SurveyResult)
    assert small.weights_bytes == (64 * 10 + 10) * 4
    assert large.weights_bytes == (64 * 1000 + 1000) * 4
    assert large.allocated_bytes > 4 * large.weights_bytes, "gradients and Adam's two moments"
    assert large.ended is SurveyEndReason.REPORTED
    assert list(tmp_path.iterdir()) == []


def test_it_runs_apart_and_knows(tmp_path: Path) -> None:
    assert isinstance(surveyed_as("tells_where_it_is", tmp_path), SurveyResult)


def test_what_it_writes_and_prints_goes_nowhere(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert isinstance(surveyed_as("writes_and_prints", tmp_path), SurveyResult)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert list(scratch.iterdir()) == []
    assert "WRITTEN" not in os.environ


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exits", "SystemExit: 3"),
        ("exits_at_once", "its process ended with exit status 3"),
        ("crashes", "its process ended with SIGSEGV"),
        ("nowhere_to_be_found", f"objective.target={surveyed_objectives.HERE}:nowhere_to_be_found"),
    ],
)
def test_one_that_ends_badly_is_unknown_and_says_why(
    name: str, reason: str, tmp_path: Path
) -> None:
    answer = surveyed_as(name, tmp_path)
    assert isinstance(answer, InconclusiveSurvey)
    assert answer.reason.startswith(reason)


@pytest.mark.parametrize("name", ["hangs", "blocks_signals_and_hangs"])
def test_one_that_hangs_is_ended(name: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    answer = surveyed_as(name, tmp_path, limits=ProcessConfinement(seconds=1))
    assert answer == InconclusiveSurvey("it took longer than 1 s")
    assert time.monotonic() - begun < 120


def test_one_that_eats_memory_fails_by_itself(tmp_path: Path) -> None:
    answer = surveyed_as("eats_memory", tmp_path, limits=replace(PATIENT, memory_bytes=2**29))
    assert isinstance(answer, InconclusiveSurvey)
    assert answer.reason.startswith(("MemoryError", "it took more than 0.5 GiB"))


@pytest.mark.slow
def test_one_whose_children_eat_memory_is_ended(tmp_path: Path) -> None:
    limits = replace(PATIENT, memory_bytes=2**30)
    answer = surveyed_as("eats_memory_in_children", tmp_path, limits=limits)
    assert answer == InconclusiveSurvey("it took more than 1.0 GiB of main memory")


def test_one_that_fills_the_disk_is_told_that_it_is_full(tmp_path: Path) -> None:
    answer = surveyed_as("fills_the_disk", tmp_path, limits=replace(PATIENT, file_bytes=2**22))
    assert isinstance(answer, InconclusiveSurvey)
    assert answer.reason.startswith("OSError: [Errno 27] File too large")


@pytest.mark.parametrize("name", ["leaves_a_daemon", "leaves_a_daemon_and_crashes"])
def test_nothing_that_it_started_is_left(name: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    surveyed_as(name, tmp_path, {"pid_file": str(pid_file)})
    assert not is_running(int(pid_file.read_text()))


def test_threads_sockets_and_programs_do_not_hold_it_up(tmp_path: Path) -> None:
    assert isinstance(surveyed_as("serves", tmp_path), SurveyResult)


def test_a_network_of_the_users_is_surveyed_in_the_built_in_training(
    tmp_path: Path, disc: Dataset
) -> None:
    plan = make_plan(family=PythonFamily(target="tests.models.networks:normed"))
    params: Params = {"width": 64, "lr": 0.01, "batch_size": 20, "optimizer": "adam"}
    spec = TrialSpec(0, params, str(tmp_path / "trial"), study_seed=7)
    answer = survey_trial(SessionSetup(plan, disc), spec, PATIENT)
    assert isinstance(answer, SurveyResult), answer
    assert answer.ended is SurveyEndReason.REPORTED
    assert answer.n_steps == 3, "of 15 in the pass"
