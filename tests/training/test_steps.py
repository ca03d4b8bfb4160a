"""Steps of our own trainers are told to who counts them, and a pass can be left."""

from __future__ import annotations

from pathlib import Path

import torch

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.training import steps
from automl.training.plan import SessionSetup
from automl.training.session import open_session
from automl.trial import Finished, Params
from tests.training.conftest import HOST, Listener, make_plan, make_spec

PARAMS: Params = {"depth": 1, "width": 8, "lr": 0.01, "batch_size": 100}


def test_each_step_is_told_with_the_weights(tmp_path: Path, disc: Dataset) -> None:
    told: list[int] = []

    def on_step(weights: torch.Tensor) -> bool:
        told.append(weights.numel())
        return False

    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    listener = Listener()
    with steps.told(on_step):
        session.run(make_spec(tmp_path, PARAMS), HOST, listener)
    assert isinstance(listener.outcome, Finished)
    assert told == [2 * 8 + 8 + 8 * 2 + 2] * 6, "300 rows in batches of 100, twice"
    session.run(make_spec(tmp_path, PARAMS, number=1), HOST, Listener())
    assert len(told) == 6, "and no longer"


def test_the_rest_of_a_pass_is_left_where_nobody_needs_it(tmp_path: Path, disc: Dataset) -> None:
    told: list[torch.Tensor] = []

    def on_step(weights: torch.Tensor) -> bool:
        told.append(weights)
        return True

    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    with steps.told(on_step):
        session.run(make_spec(tmp_path, PARAMS), HOST, Listener())
    assert len(told) == 2
