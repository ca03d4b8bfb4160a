"""Folds of any estimator: in turn from report to report, whatever their lengths."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import DataConfig, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.trial_context import TrialContext
from automl.models.judged_rows import JudgedTargets, ReportScores
from automl.models.networks.folds.fold_estimator import FoldsEstimator
from automl.objectives.training_session import TrainingSession
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    TrialTagged,
    Verdict,
)
from tests.models.conftest import HOST, Listener, make_plan, make_spec

LOSSES = ((5.0, 1.0), (4.0, 6.0, 2.0, 6.0), (9.0, 8.0, 3.0))
"""The losses of three folds by epoch. The first trains for two, and its last loss counts on."""


class Toy:
    """A fold that reports these losses; its model is the epoch."""

    def __init__(self, losses: Sequence[float], log: list[str], name: str) -> None:
        self._losses, self._log, self._name = losses, log, name
        self.gives_state = True
        self.judged: JudgedTargets | None = None
        self.error: Exception | None = None

    def __call__(self, trial: TrialContext) -> None:
        state = trial.restore()
        trial.set_tag("seed", trial.seed)
        for epoch in range(0 if state is None else state["epoch"] + 1, len(self._losses)):
            self._log.append(self._name)
            if self.error is not None:
                raise self.error
            trial.report(
                epoch,
                {"val_loss": self._losses[epoch]},
                checkpoint=partial(dict, epoch=epoch) if self.gives_state else None,
                best=partial(dict, {"is": torch.tensor(epoch)}, format="shared"),
                scores=self._scores(self._losses[epoch]),
            )
            self._log.append(f"{self._name} goes on")

    def _scores(self, loss: float) -> ReportScores | None:
        """The second class by its own score, and the more by the more is lost."""
        if self.judged is None:
            return None
        second = 4 * self.judged.y + loss
        return ReportScores(self.judged, lambda: np.column_stack([0 * second, second]))

    def open_pack(self, key: object, device: str) -> None:
        raise NotImplementedError


class ToyFolds(FoldsEstimator):
    """The toys in place of a family's estimators."""

    def __init__(self, dataset: Dataset) -> None:
        training = TrainingConfig(checkpoint_every_seconds=0)
        self.plan = replace(make_plan(training=training), n_models=3)
        super().__init__(self.plan.estimator_setup(dataset))
        self.log: list[str] = []
        self.toys = [Toy(losses, self.log, f"{n}") for n, losses in enumerate(LOSSES)]
        self._fold_estimators: Any = self.toys

    def _open_own(self, trial: TrialContext) -> None:
        return None


@pytest.fixture
def folds() -> ToyFolds:
    return ToyFolds(load_dataset(DataConfig(folds=3, n_train=20, n_validation=10)))


def run(folds: ToyFolds, folder: Path, stop_at: int | None = None) -> Listener:
    listener = Listener({} if stop_at is None else {stop_at: Verdict.STOP})
    session = TrainingSession(folds.plan, folds)
    session.run(make_spec(folder, {}), HOST, listener)
    return listener


def losses(found: Listener) -> list[float]:
    return [metrics["val_loss"] for _, metrics in found.reports]


def test_one_at_a_time_from_report_to_report(tmp_path: Path, folds: ToyFolds) -> None:
    found = run(folds, tmp_path)
    assert folds.log[:6] == ["0", "1", "2", "0 goes on", "0", "1 goes on"]
    assert losses(found) == [18 / 3, 15 / 3, 6 / 3, 10 / 3]
    assert isinstance(found.outcome, FinishedOutcome)
    # Others of the first: 13, 14, 5, 9; of the second 14, 9, 4, 4; of the third 9, 7, 3, 7.
    assert found.outcome.value == (1.0 + 2.0 + 3.0) / 3
    members = torch_checkpoint.load(tmp_path / "trial-00000" / "best.pt")["state"]["members"]
    assert [int(member["is"]) for member in members] == [1, 2, 2]
    assert [set(member) for member in members] == [{"is"}] * 3


def test_each_fold_has_a_seed_of_its_own(tmp_path: Path, folds: ToyFolds) -> None:
    tags = {event.text for event in run(folds, tmp_path).events if isinstance(event, TrialTagged)}
    assert len(tags) == 3


@pytest.mark.parametrize("stop_at", [0, 1, 2, 3])
def test_folds_of_several_lengths_go_on(tmp_path: Path, folds: ToyFolds, stop_at: int) -> None:
    whole = run(folds, tmp_path / "whole")
    assert isinstance(run(folds, tmp_path / "parts", stop_at).outcome, InterruptedOutcome)
    last = run(folds, tmp_path / "parts")
    assert losses(last) == losses(whole)
    assert isinstance(last.outcome, FinishedOutcome)
    assert isinstance(whole.outcome, FinishedOutcome)
    assert last.outcome.value == whole.outcome.value
    found, expected = (
        torch_checkpoint.load(tmp_path / name / "trial-00000" / "best.pt")
        for name in ("parts", "whole")
    )
    assert found == expected


@pytest.mark.parametrize("stop_at", [1, 2])
def test_a_fold_that_ended_before_still_counts_in_ranks(
    tmp_path: Path, folds: ToyFolds, stop_at: int
) -> None:
    goal = {"metric": "val_auc", "direction": Direction.maximize}
    folds.plan = replace(folds.plan, **goal)  # type: ignore[arg-type]
    folds._setup = replace(folds._setup, goal=folds.plan.goal)
    for number, toy in enumerate(folds.toys):
        part = folds._dataset.fold(number)
        toy.judged = JudgedTargets.from_part(part, part.validation, "val_auc")
    whole = run(folds, tmp_path / "whole")
    values = [metrics["val_auc"] for _, metrics in whole.reports]
    assert len(set(values)) == len(values) == 4
    run(folds, tmp_path / "parts", stop_at)
    last = run(folds, tmp_path / "parts")
    assert last.reports == whole.reports
    assert isinstance(whole.outcome, FinishedOutcome)
    assert isinstance(last.outcome, FinishedOutcome)
    assert last.outcome.value == whole.outcome.value


def test_without_states_to_go_on_from_it_begins_anew(tmp_path: Path, folds: ToyFolds) -> None:
    folds.toys[1].gives_state = False
    assert isinstance(run(folds, tmp_path, stop_at=1).outcome, InterruptedOutcome)
    assert not (tmp_path / "trial-00000" / "last.pt").exists()
    assert isinstance(run(folds, tmp_path).outcome, FinishedOutcome)


def test_no_call_outlives_its_trial(tmp_path: Path, folds: ToyFolds) -> None:
    before = threading.active_count()
    for stop_at in (0, None):
        run(folds, tmp_path, stop_at)
        assert threading.active_count() == before
    folds.toys[2].error = RuntimeError("a fold of its own mind")
    outcome = run(folds, tmp_path / "other").outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.cause == "RuntimeError: a fold of its own mind"
    assert "in __call__" in outcome.details
    assert threading.active_count() == before
