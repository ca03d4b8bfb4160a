"""A function written for Ray Tune: it takes its params as a dict, and reports from deep inside.

What was `tune.report({…})` is `automl.report({…})`; the dict, the returned dict and the space stay.
The first command sweeps the function by its name, the second by a call with Ray's own space, which
was `tune.Tuner(train, param_space=SPACE, tune_config=…).fit()`. A trial with a loss of 0.05 is good
enough: no more begin.

$ python -m automl train=ray_tune_function.py:train name=ray metric=mean_loss n_trials=8 \
    space.lr=log:1e-3..1e-1 space.width=8,32 space.momentum=0.5..0.99 study.stop_value=0.05
$ python ray_tune_function.py
"""

import torch
from ray import tune
from torch import nn

import automl

SPACE = {
    "lr": tune.loguniform(1e-3, 1e-1),
    "width": tune.choice([8, 32]),
    "momentum": tune.uniform(0.5, 0.99),
}


def train(config):
    torch.manual_seed(0)
    x = torch.rand(400, 1) * 6 - 3
    model = nn.Sequential(nn.Linear(1, config["width"]), nn.Tanh(), nn.Linear(config["width"], 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    loss = None
    for _ in range(10):
        loss = fit_one_epoch(model, optimizer, x, torch.sin(x))
    return {"mean_loss": loss}


def fit_one_epoch(model, optimizer, x, y):
    for rows in torch.randperm(len(x)).split(40):
        loss = (model(x[rows]) - y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        loss = (model(x) - y).square().mean().item()
    automl.report({"mean_loss": loss})
    return loss


if __name__ == "__main__":
    study = automl.sweep(train, space=SPACE, metric="mean_loss", n_trials=8, name="ray-space")
    print(study.best.params, study.best.value)
