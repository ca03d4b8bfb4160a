"""Steps of our own trainers are told to who counts them, and a pass can be left; those of all
loops are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automl.config import ObjectiveConfig, ObjectiveKind, TrainingConfig
from automl.data.dataset import Dataset
from automl.execution.executor import TrialFeed
from automl.in_trial.reports import step_counter
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import FinishedOutcome, Params
from tests.models.conftest import HOST, Listener, make_plan, make_spec

PARAMS: Params = {"depth": 1, "width": 8, "lr": 0.01, "batch_size": 100}


def test_each_step_is_told_with_the_weights(tmp_path: Path, disc: Dataset) -> None:
    told: list[int] = []

    def on_step(weights: torch.Tensor) -> bool:
        told.append(weights.numel())
        return False

    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    listener = Listener()
    with step_counter.listen_to_steps(on_step):
        session.run(make_spec(tmp_path, PARAMS), HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome)
    assert told == [2 * 8 + 8 + 8 * 2 + 2] * 6, "300 rows in batches of 100, twice"
    session.run(make_spec(tmp_path, PARAMS, number=1), HOST, Listener())
    assert len(told) == 6, "and no longer"


def test_the_rest_of_a_pass_is_left_where_nobody_needs_it(tmp_path: Path, disc: Dataset) -> None:
    told: list[torch.Tensor] = []

    def on_step(weights: torch.Tensor) -> bool:
        told.append(weights)
        return True

    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    with step_counter.listen_to_steps(on_step):
        session.run(make_spec(tmp_path, PARAMS), HOST, Listener())
    assert len(told) == 2


def by_torch(trial: Any) -> None:
    """Three steps of torch's optimizer to a report."""
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for epoch in range(2):
        for _ in range(3):
            weight.sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        trial.report(epoch, {"val_loss": 1.0})


def by_hand(trial: Any) -> None:
    """No optimizer at all."""
    for epoch in range(4):
        trial.report(epoch, {"val_loss": 1.0})


@pytest.mark.parametrize(("objective", "n"), [(by_torch, 6), (by_hand, 4)])
def test_a_users_steps_are_counted_or_else_its_reports(
    tmp_path: Path, objective: Callable[[Any], None], n: int
) -> None:
    config = ObjectiveConfig(ObjectiveKind.python, f"{__name__}:{objective.__name__}")
    session = open_session(SessionSetup(make_plan(objective=config)))
    before = session.n_steps
    listener = Listener()
    session.run(make_spec(tmp_path, {}), HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert session.n_steps == before + n


def test_our_own_trainers_steps_are_counted(tmp_path: Path, disc: Dataset) -> None:
    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    before = session.n_steps
    session.run(make_spec(tmp_path, PARAMS), HOST, Listener())
    assert session.n_steps == before + 6


def test_of_a_pack_a_step_counts_in_each_lane(tmp_path: Path, disc: Dataset) -> None:
    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    before = session.n_steps
    specs = [make_spec(tmp_path, PARAMS, number=number) for number in range(2)]
    session.run_pack(TrialFeed(specs, lambda spec: None), HOST, lambda events: {})
    assert session.n_steps == before + 2 * 6
