"""A net of skorch's in a trial."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl
from automl.in_trial.checkpoints import torch_checkpoint
from automl.trial import FinishedOutcome, PrunedOutcome, Verdict
from tests.integrations.conftest import CarryOut

with suppress(ModuleNotFoundError):  # then all are skipped, below
    import skorch

N_EPOCHS = 4


@pytest.fixture(autouse=True)
def library() -> None:
    pytest.importorskip("skorch", reason="skorch is not installed: make recipes does it")


def net(*callbacks: Any) -> Any:
    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(-1)),
        max_epochs=N_EPOCHS,
        lr=0.5,
        callbacks=[*callbacks],
        verbose=0,
    )


def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int64)


def trains(trial: automl.TrialContext) -> None:
    net(automl.integrations.skorch.Report(trial, "valid_loss", "valid_acc")).fit(*rows())


def test_each_epoch_is_a_report(carry_out: CarryOut, tmp_path: Path) -> None:
    ended = carry_out(trains, metric="valid_loss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == list(range(N_EPOCHS))
    assert all(metrics.keys() == {"valid_loss", "valid_acc"} for _, metrics in ended.reports)
    best = torch_checkpoint.load(tmp_path / "trial-00000" / "best.pt")
    assert best["state"]["module"]["0.weight"].shape == (2, 2)


@pytest.mark.parametrize("optunas", [False, True])
def test_pruned(carry_out: CarryOut, optunas: bool) -> None:
    ended = carry_out(trains, {1: Verdict.PRUNE}, metric="valid_loss", optunas=optunas)
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert (ended.outcome.step, len(ended.reports)) == (1, 2)


def test_a_net_with_a_report_can_be_printed_and_searched_for_params(carry_out: CarryOut) -> None:
    def looks(trial: automl.TrialContext) -> None:
        own = net(("report", automl.integrations.skorch.Report(trial, "valid_loss"))).initialize()
        assert "callbacks__report" in own.get_params()
        assert "NeuralNetClassifier" in repr(own)
        own.fit(*rows())

    ended = carry_out(looks, metric="valid_loss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome


def test_optunas_own_callback_prunes(carry_out: CarryOut) -> None:
    callbacks = pytest.importorskip(
        "optuna_integration", reason="optuna-integration is not installed: make recipes does it"
    )

    def objective(trial: Any) -> None:
        net(callbacks.SkorchPruningCallback(trial, "valid_loss")).fit(*rows())

    ended = carry_out(objective, {1: Verdict.PRUNE}, optunas=True)
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert len(ended.reports) == 2
