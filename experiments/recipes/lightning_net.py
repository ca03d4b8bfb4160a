"""A LightningModule, trained by Lightning's own Trainer: one line is added, the callback.

It reports `val_loss` after each epoch, ends trials that are pruned, and keeps what Lightning needs
to go on: stop the sweep with Ctrl-C, and the line that it prints resumes each trial where it was.
So Lightning's own checkpoints are off here.

$ python -m automl objective=python objective.target=lightning_net.py:train \
    study.name=lightning study.n_trials=8 pruner.max_steps=9 \
    space='{width: {low: 8, high: 64, log: true}, lr: {low: 1e-4, high: 1e-1, log: true}}'
"""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import automl


class Digits(L.LightningModule):
    def __init__(self, width, lr):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        self.lr = lr

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.layers(x)
        self.log("val_loss", nn.functional.cross_entropy(scores, y))
        self.log("val_accuracy", (scores.argmax(dim=1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def loaders():
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    train, validation = TensorDataset(x[:1300], y[:1300]), TensorDataset(x[1300:], y[1300:])
    return DataLoader(train, batch_size=100, shuffle=True), DataLoader(validation, batch_size=500)


def train(width, lr, *, trial):
    L.seed_everything(trial.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=9,
        callbacks=[automl.integrations.lightning.Report(trial, "val_loss", "val_accuracy")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Digits(width, lr), *loaders())
