"""Objectives written for Optuna (`objective=optuna`): what they see of a trial, without Optuna."""
