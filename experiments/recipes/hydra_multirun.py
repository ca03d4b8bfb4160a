"""A Hydra application, unchanged, swept by its own `--multirun`: each trial is one of its runs.

It prints its validation loss, by which bad trials are pruned, and returns the last one, which is
the trial's value. The second command goes on with the study of the first, in its folder of outputs.

$ python hydra_multirun.py -m hydra/sweeper=automl 'lr=tag(log,interval(1e-3,1e-1))' width=8,32 \
    hydra.sweeper.study_name=multirun hydra.sweeper.metric=val_loss hydra.sweeper.n_trials=6
$ python hydra_multirun.py -m hydra/sweeper=automl 'lr=tag(log,interval(1e-3,1e-1))' width=8,32 \
    hydra.sweeper.study_name=multirun hydra.sweeper.metric=val_loss hydra.sweeper.n_trials=8
"""

from dataclasses import dataclass

import hydra
import torch
from hydra.core.config_store import ConfigStore
from torch import nn


@dataclass
class Training:
    lr: float = 0.01
    width: int = 16
    epochs: int = 8
    seed: int = 0


ConfigStore.instance().store(name="training", node=Training)


@hydra.main(version_base="1.3", config_path=None, config_name="training")
def main(cfg):
    torch.manual_seed(cfg.seed)
    x = 6 * torch.rand(1200, 1) - 3
    y = torch.sin(x) + 0.05 * torch.randn(1200, 1)
    model = nn.Sequential(nn.Linear(1, cfg.width), nn.Tanh(), nn.Linear(cfg.width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        for rows in torch.randperm(1000).split(50):
            loss = (model(x[rows]) - y[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = (model(x[1000:]) - y[1000:]).square().mean().item()
        print(f"epoch {epoch} val_loss: {val_loss:.4f}")
    return val_loss


if __name__ == "__main__":
    main()
