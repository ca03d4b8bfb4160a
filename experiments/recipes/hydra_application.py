"""A Hydra application that composes a sweep's settings beside its own, and runs the sweep.

Its config is `hydra_application.yaml`. One line lets Hydra find our settings, one runs what they
say; any of them may be changed where the application's own are, on the command line. The second
command goes on with the study of the first.

$ python hydra_application.py epochs=8 pruner@automl.pruner=median
$ python hydra_application.py epochs=8 pruner@automl.pruner=median automl.study.n_trials=8
"""

import hydra
import torch
from torch import nn

import automl

automl.register_configs()


def train(lr, width, epochs, batch_size, *, trial):
    generator = torch.Generator().manual_seed(trial.seed)
    torch.manual_seed(trial.seed)
    x = 6 * torch.rand(1200, 1, generator=generator) - 3
    y = torch.sin(x) + 0.05 * torch.randn(1200, 1, generator=generator)
    model = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        for rows in torch.randperm(1000, generator=generator).split(batch_size):
            loss = (model(x[rows]) - y[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = (model(x[1000:]) - y[1000:]).square().mean()
        trial.report(epoch, {"val_loss": val_loss.item()})


@hydra.main(version_base="1.3", config_path=".", config_name="hydra_application")
def main(cfg):
    study = automl.sweep(cfg.automl)
    print(f"best after {cfg.epochs} epochs: {study.best.value:.4f} with {study.best.params}")


if __name__ == "__main__":
    main()
