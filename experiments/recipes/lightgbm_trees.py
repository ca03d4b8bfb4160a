"""LightGBM: one line is added, the callback, which reports each iteration to the sweep.

A trial whose trees learn more slowly than the others' is pruned after some iterations. LightGBM's
early stopping works beside it. XGBoost is the same with `automl.integrations.xgboost.Report`.

$ python -m automl objective=python objective.target=lightgbm_trees.py:train \
    study.name=lightgbm study.n_trials=20 study.metric=binary_logloss pruner.max_steps=60 \
    space='{learning_rate: {low: 1e-3, high: 0.5, log: true}, num_leaves: {low: 2, high: 32}}'
"""

import lightgbm as lgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import automl


def train(trial):
    x, x_val, y, y_val = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    data = lgb.Dataset(x, y)
    fixed = {"objective": "binary", "num_threads": 1, "seed": trial.seed, "verbosity": -1}
    lgb.train(
        {**fixed, **trial.params},
        data,
        num_boost_round=60,
        valid_sets=[data.create_valid(x_val, y_val)],
        callbacks=[
            lgb.early_stopping(10, verbose=False),
            automl.integrations.lightgbm.Report(trial, "binary_logloss"),
        ],
    )
