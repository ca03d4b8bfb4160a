"""Transformers' own way to MLflow, `report_to="mlflow"`, inside a trial."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch

from automl.in_trial.trial_context import TrialContext
from tests.tracking.inside.conftest import Trainer

with suppress(ModuleNotFoundError):  # then it is skipped, below
    import transformers


@pytest.fixture(autouse=True)
def library() -> None:
    reason = "Transformers is not installed: make recipes does it"
    pytest.importorskip("transformers", reason=reason)
    pytest.importorskip("accelerate", reason=reason)


class Line(torch.nn.Module):
    """What a Trainer takes for a model: it gives a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def test_what_a_trainer_logs_is_its_trials(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trainer.folder)
    rows = [{"x": torch.tensor([n / 8]), "labels": torch.tensor([n / 4])} for n in range(8)]

    def train(trial: TrialContext) -> float:
        arguments: dict[str, Any] = {
            "output_dir": "out",
            "num_train_epochs": 3,
            "eval_strategy": "epoch",
            "logging_strategy": "epoch",
            "save_strategy": "no",
            "report_to": "mlflow",
            "disable_tqdm": True,
            "use_cpu": True,
        }
        own = transformers.Trainer(
            Line(),
            transformers.TrainingArguments(**arguments),
            train_dataset=rows,
            eval_dataset=rows,
        )
        own.train()
        return float(own.evaluate()["eval_loss"])

    trial = trainer.run(train)
    losses = {step: value for name, step, value in trial.points if name == "eval_loss"}
    assert list(losses) == [1, 2, 3, 4], "steps of the Trainer's; the last is evaluated once more"
    assert trial.value == pytest.approx(losses[3]) == pytest.approx(losses[4])
    assert trial.params["num_train_epochs"] == "3"
    assert "epoch" in {name for name, _, _ in trial.points}
