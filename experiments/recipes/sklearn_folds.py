"""scikit-learn with cross-validation, one fold after another, so that a fold can prune.

`cross_val_score` is scikit-learn's, with the trial before its arguments: after each fold it reports
the mean score of the folds so far. What is bad on two folds need not be fitted to the other eight.

$ python -m automl objective=python objective.target=sklearn_folds.py:train \
    study.name=folds study.n_trials=20 study.metric=accuracy study.direction=maximize \
    pruner=median pruner.n_warmup_steps=1 \
    space='{C: {low: 1e-2, high: 1e+3, log: true}, gamma: {low: 1e-6, high: 1e-1, log: true}}'
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from automl.integrations.sklearn import cross_val_score


def train(C, gamma, *, trial):
    x, y = load_digits(return_X_y=True)
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    return cross_val_score(trial, SVC(C=C, gamma=gamma), x[:600], y[:600], cv=folds).mean()
