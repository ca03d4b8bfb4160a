"""A trial is seen step by step, and ended when its time is up."""

from __future__ import annotations

from pathlib import Path

import torch

from automl.config import ObjectiveConfig, ObjectiveKind, TrainingConfig
from automl.data.dataset import Dataset
from automl.measure.gain.child import DataCopiedPerStep
from automl.measure.gain.watch import ExecutionWatch, HostClock, TimedExecution
from automl.models.networks.tensors import DataOnDevices
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import open_session
from automl.trial import Params, single_event_handler
from tests.models.conftest import HOST, make_plan, make_spec
from tests.models.conftest import disc as disc
from tests.running.trials import timed_objectives

PARAMS: Params = {"width": 8, "batch_size": 50, "lr": 0.01}


def watched(
    plan: TrainingPlan,
    folder: Path,
    seconds: float,
    dataset: Dataset | None = None,
    pass_seconds: float = 1e6,
) -> tuple[ExecutionWatch, TimedExecution]:
    session = open_session(SessionSetup(plan, dataset))
    cuts = plan.objective.kind is ObjectiveKind.builtin
    watch = ExecutionWatch(HostClock(), seconds, cuts=cuts, pass_seconds=pass_seconds)  # type: ignore[arg-type]
    with watch.watching():
        session.run(make_spec(folder, PARAMS), HOST, single_event_handler(watch.on_events))
    return watch, watch.call()


def test_a_trial_that_has_time_is_seen_whole(tmp_path: Path, disc: Dataset) -> None:
    plan = make_plan(training=TrainingConfig(epochs=3))
    watch, call = watched(plan, tmp_path, 1e6, disc)
    n_batches = -(-len(disc.train) // 50)
    assert [len(marks) for marks in call.passes] == [n_batches] * 3
    marks = [call.begun, *(mark for p in call.passes for mark in p), call.ended]
    assert marks == sorted(marks)
    assert call.whole
    assert watch.trouble is None


def test_one_that_has_none_is_left_after_two_steps_and_is_not_whole(
    tmp_path: Path, disc: Dataset
) -> None:
    for epochs in (1, 3):
        plan = make_plan(training=TrainingConfig(epochs=epochs))
        watch, call = watched(plan, tmp_path / str(epochs), 0.0, disc)
        assert [len(marks) for marks in call.passes] == [2]
        assert not call.whole
        assert watch.trouble is None


def test_long_passes_are_left_and_what_ends_so_is_not_whole(tmp_path: Path, disc: Dataset) -> None:
    plan = make_plan(training=TrainingConfig(epochs=3))
    _, call = watched(plan, tmp_path, 1e6, disc, pass_seconds=0.0)
    assert [len(marks) for marks in call.passes] == [2, 2, 2]
    assert not call.whole


def test_a_users_function_is_ended_at_a_step(tmp_path: Path) -> None:
    target = f"{timed_objectives.HERE}:trains_for_ever"
    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, target))
    watch, call = watched(plan, tmp_path, 0.01)
    assert len(call.passes[0]) >= 2
    assert not call.whole
    assert watch.trouble is None


def test_rows_that_are_copied_are_those_that_the_step_asks_for(disc: Dataset) -> None:
    kept, order = DataOnDevices(disc), torch.randperm(len(disc.train))
    with DataCopiedPerStep(kept).open_rows("cpu", torch.float32) as copied:
        assert len(copied.train) == len(disc.train)
        batches = [*copied.train.batches(order, 64, seed=0)]
    whole = kept.tensors("cpu", torch.float32).train
    for (x, y), rows in zip(batches, torch.split(order, 64), strict=True):
        assert torch.equal(x, whole.x[rows])
        assert torch.equal(y, whole.y[rows])
        assert x.untyped_storage().data_ptr() != whole.x.untyped_storage().data_ptr()
