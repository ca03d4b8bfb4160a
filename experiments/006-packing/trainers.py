"""Objectives by others' trainers; `survey.py --ways` surveys those whose library is there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import automl

X, Y = torch.rand(256, 64), torch.arange(256) % 10


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def lightning(trial: automl.TrialContext) -> None:
    L: Any = importlib.import_module("lightning")  # noqa: N806  as its users import it

    class Module(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, index: int) -> Any:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("val_loss", loss)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                loss = float(self.trainer.callback_metrics["val_loss"])
                trial.report(self.current_epoch, {"val_loss": loss})

    loader = DataLoader(TensorDataset(X, Y), batch_size=64)
    trainer = L.Trainer(
        accelerator="cpu" if trial.device == "cpu" else "gpu",
        devices=1,
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=trial.directory,
    )
    trainer.fit(Module(), loader, loader)


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": X[index], "labels": Y[index]}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.net(x)
        return {"loss": F.cross_entropy(out, labels), "logits": out}


def transformers(trial: automl.TrialContext) -> None:
    library: Any = importlib.import_module("transformers")

    class Report(library.TrainerCallback):  # type: ignore[misc]
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
            trial.report(int(state.epoch), {"val_loss": metrics["eval_loss"]})

    settings = library.TrainingArguments(
        output_dir=str(Path(trial.directory) / "out"),
        per_device_train_batch_size=64,
        per_device_eval_batch_size=64,
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=trial.device == "cpu",
        disable_tqdm=True,
    )
    library.Trainer(
        model=Classifier(),
        args=settings,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[Report()],
    ).train()
