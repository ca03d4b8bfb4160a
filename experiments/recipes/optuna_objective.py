"""An objective written for Optuna, swept as it is: no line is changed.

It asks for its params as it goes, and needs no space: how many layers there are decides which
params there are. `python optuna_objective.py` still runs it by Optuna alone, one trial after the
other and without a record in MLflow.

$ python -m automl objective=optuna objective.target=optuna_objective.py:objective \
    study.name=optuna study.n_trials=12 study.metric=accuracy study.direction=maximize
"""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

EPOCHS = 15


def digits():
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    return x[:1300], y[:1300], x[1300:], y[1300:]


def define_model(trial):
    layers, n_inputs = [], 64
    for i in range(trial.suggest_int("n_layers", 1, 3)):
        n_outputs = trial.suggest_int(f"n_units_l{i}", 8, 64, log=True)
        layers += [nn.Linear(n_inputs, n_outputs), nn.ReLU()]
        n_inputs = n_outputs
    return nn.Sequential(*layers, nn.Linear(n_inputs, 10))


def objective(trial):
    torch.manual_seed(trial.number)
    x, y, x_val, y_val = digits()
    model = define_model(trial)
    name = trial.suggest_categorical("optimizer", ["Adam", "SGD"])
    lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=lr)
    accuracy = 0.0
    for epoch in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(100):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(x_val).argmax(dim=1) == y_val).float().mean().item()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=12)
    print(study.best_params, study.best_value)
