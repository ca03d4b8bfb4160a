"""A pack of a user's networks is kept apart from what trains after it, as a trial is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.execution.executor import TrialFeed
from automl.models.families.python.family import PythonFamily
from automl.objectives.training_plan import SessionSetup
from automl.trial import FinishedOutcome, Params, TrialOutcome
from tests.execution.isolation import networks
from tests.execution.isolation.conftest import Trials
from tests.models.conftest import disc, make_plan, make_spec

__all__ = ["disc"]

PARAMS: Params = {"lr": 0.01, "batch_size": 100}


@pytest.mark.slow
def test_a_pack_is_put_back_or_ends_its_process(
    tmp_path: Path,
    disc: Dataset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    family = PythonFamily(target=f"{networks.HERE}:build")
    plan = make_plan(family=family, training=TrainingConfig(epochs=2))
    trials = Trials(tmp_path, setup=SessionSetup(plan, disc, packs_large=True))

    def run(first: int, act: str) -> list[TrialOutcome]:
        params = {**PARAMS, "act": act}
        specs = [make_spec(tmp_path, params, number) for number in (first, first + 1)]
        ended = trials.execute(TrialFeed(specs, lambda taken: None))
        return sorted(ended, key=lambda outcome: outcome.trial)

    with closing(trials.executor):
        for first, act in ((0, "nothing"), (2, "leave_thread"), (4, "nothing")):
            ended = run(first, act)
            assert [type(outcome) for outcome in ended] == [FinishedOutcome, FinishedOutcome], ended
            assert trials.printed(first).split()[:2] == ["clean", "module"]
    [message] = [record.getMessage() for record in caplog.records]
    assert "lives on" in message
