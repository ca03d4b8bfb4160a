"""A training script as people have them, turned into an objective: it reads the command line."""

from __future__ import annotations

import argparse

import optuna

import automl

parser = argparse.ArgumentParser()
parser.add_argument("--n-steps", type=int, default=3)
args = parser.parse_args()


def train(trial: automl.TrialContext) -> None:
    for step in range(args.n_steps):
        trial.report(step, {"val_loss": 1.0 + trial.number})
        if trial.number == 1:
            raise optuna.TrialPruned("no better than the first")
