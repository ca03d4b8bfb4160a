"""Timing for real, on the host: a row for each way, and nothing left behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from automl.config import ObjectiveConfig, ObjectiveKind, Precision, TrainingConfig
from automl.data.dataset import Dataset
from automl.measure.gain.gain_messages import TrainingWay
from automl.models.families.python.family import PythonFamily
from automl.objectives.training_plan import SessionSetup
from automl.running.trials.step_timing import (
    HOST_DEVICE,
    TimedDevice,
    TimingRow,
    TimingTask,
    TrialSize,
    time_tasks,
    ways_to_time,
)
from automl.trial import LOCAL_NODE, DeviceId, Params
from tests.fork_server import fork_server_with
from tests.models.conftest import disc as disc
from tests.models.conftest import make_plan
from tests.processes import is_running
from tests.running.trials import timed_objectives

PATIENT_SECONDS = 90.0
"""A machine with much else to do."""
SMALL: Params = {"depth": 1, "width": 8, "batch_size": 50, "lr": 0.01}
LARGE: Params = {"depth": 3, "width": 300, "batch_size": 100, "lr": 0.01}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    fork_server_with()


@pytest.fixture(autouse=True)
def _leaves_no_file(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Where no other process leaves any."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def timed(
    setup: SessionSetup, *tasks: TimingTask, total_seconds: float = PATIENT_SECONDS
) -> Sequence[TimingRow]:
    return time_tasks(setup, tasks, lambda line: None, total_seconds=total_seconds, way_seconds=0.1)


def users(name: str) -> SessionSetup:
    target = f"{timed_objectives.HERE}:{name}"
    return SessionSetup(make_plan(objective=ObjectiveConfig(ObjectiveKind.python, target)))


def task(params: Params, *chosen: TrainingWay, name: str = "small") -> TimingTask:
    return TimingTask(HOST_DEVICE, TrialSize(name, params), chosen)


@pytest.mark.slow
def test_every_way_of_every_size_has_its_time(disc: Dataset) -> None:
    plan = make_plan(training=TrainingConfig(epochs=30))
    tasks = [
        task(params, *ways_to_time(plan, params, on_host=True, n_cores=2, pack="auto"), name=name)
        for name, params in (("small", SMALL), ("large", LARGE))
    ]
    rows = timed(SessionSetup(plan, disc), *tasks)
    assert [(r.size.name, r.timing.way) for r in rows] == [
        (t.size.name, way) for t in tasks for way in t.ways
    ]
    for row in rows:
        timing = row.timing
        assert timing.trouble is None
        assert timing.step_seconds is not None
        assert timing.trial_seconds is not None
        n_steps = 30 * -(-len(disc.train) // int(row.size.params["batch_size"] or 1))
        assert timing.trial_seconds > 0.3 * n_steps * timing.step_seconds


@pytest.mark.slow
def test_other_precisions_and_networks_of_the_users_are_timed_too(disc: Dataset) -> None:
    plan = make_plan(family=PythonFamily(target="tests.models.networks:normed"))
    params: Params = {"width": 64, "lr": 0.01, "batch_size": 20, "optimizer": "adam"}
    chosen = (
        TrainingWay(),
        TrainingWay(precision=Precision.float64),
        TrainingWay(n_lanes=4),
        TrainingWay(copies=True),
    )
    rows = timed(SessionSetup(plan, disc), task(params, *chosen))
    assert [row.timing.trouble for row in rows] == [None] * 4


def test_what_cannot_train_together_says_why(disc: Dataset) -> None:
    plan = make_plan(family=PythonFamily(target="tests.models.networks:dropping"))
    params: Params = {"lr": 0.01, "batch_size": 20, "optimizer": "adam"}
    alone, packed = timed(
        SessionSetup(plan, disc), task(params, TrainingWay(), TrainingWay(n_lanes=4))
    )
    assert alone.timing.step_seconds is not None
    assert packed.timing.step_seconds is None
    assert str(packed.timing.trouble).startswith("not together: ")


def test_a_users_function_is_timed_by_its_steps() -> None:
    rows = timed(users("trains"), task({"width": 4}, TrainingWay(), TrainingWay(n_threads=2)))
    for row in rows:
        assert row.timing.trouble is None
        assert row.timing.step_seconds is not None
        assert row.timing.trial_seconds is None, "nobody saw its end"
        assert not row.timing.per_report


def test_a_users_function_that_ends_tells_how_long_it_takes() -> None:
    (row,) = timed(users("trains_a_little"), task({}, TrainingWay()))
    assert row.timing.step_seconds is not None
    assert row.timing.step_seconds >= timed_objectives.STEP_SECONDS
    assert row.timing.trial_seconds is not None
    assert row.timing.trial_seconds >= timed_objectives.N_STEPS * timed_objectives.STEP_SECONDS


def test_one_without_an_optimizer_of_torchs_is_timed_by_its_reports() -> None:
    (row,) = timed(users("reports_only"), task({}, TrainingWay()))
    assert row.timing.step_seconds is not None
    assert row.timing.per_report


def test_one_that_fails_says_why() -> None:
    (row,) = timed(users("raises"), task({}, TrainingWay()))
    assert row.timing.trouble == "ValueError: the rows are odd"


@pytest.mark.slow
def test_one_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    pids: list[int] = []
    for seconds in (4.0, 16.0, 64.0):  # a busy machine may not have begun it
        asked = task({"pid_file": str(pid_file)}, TrainingWay())
        (row,) = timed(users("catches_all"), asked, total_seconds=seconds)
        pids = [int(pid) for pid in pid_file.read_text().split()] if pid_file.exists() else []
        if len(pids) == 2:
            break
    assert len(pids) == 2
    assert not any(map(is_running, pids))
    assert row.timing.step_seconds is None


def test_a_device_that_torch_cannot_use_says_so(disc: Dataset) -> None:
    gpu = TimedDevice(DeviceId(LOCAL_NODE, "GPU-0000"), "a GPU")
    (row,) = timed(
        SessionSetup(make_plan(), disc),
        TimingTask(gpu, TrialSize("small", SMALL), (TrainingWay(),)),
    )
    assert str(row.timing.trouble).endswith("cannot use it")
