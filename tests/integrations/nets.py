"""A small module for Lightning, which processes that are spawned import, too."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import automl


class Line(pl.LightningModule):
    """y = 2 x, by one weight; it counts its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"anything": object()})
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.n_batches: list[int] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        self.n_batches.append(index)
        loss: torch.Tensor = (self.weight * x - y).square().mean()
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        loss = (self.weight * x - y).square().mean()
        self.log_dict({"val_loss": loss, "val_error": loss.sqrt()}, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def data() -> DataLoader[Any]:
    x = torch.linspace(-1, 1, 16).unsqueeze(1)
    return DataLoader(TensorDataset(x, 2 * x), batch_size=4)


def trainer(*callbacks: pl.Callback, **settings: Any) -> pl.Trainer:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    return pl.Trainer(**{"max_epochs": 4, **quiet, "callbacks": [*callbacks], **settings})


after: list[float] = []
"""Of the functions below: what they had after their fit."""


def spawns(trial: automl.TrialContext) -> float:
    """Trains in two processes."""
    report = automl.integrations.lightning.Report(trial, "val_loss")
    two = trainer(report, strategy="ddp_spawn", devices=2, max_epochs=3)
    two.fit(Line(), data(), data())
    report.check_pruned()
    after.append(float(two.callback_metrics["val_loss"]))
    return after[-1]


def forks(trial: automl.TrialContext) -> None:
    report = automl.integrations.lightning.Report(trial, "val_loss")
    trainer(report, strategy="ddp_fork", devices=2).fit(Line(), data(), data())


def spawns_with_optunas(trial: Any) -> None:
    from optuna_integration import PyTorchLightningPruningCallback

    pruning = PyTorchLightningPruningCallback(trial, "val_loss")
    trainer(pruning, strategy="ddp_spawn", devices=2).fit(Line(), data(), data())
