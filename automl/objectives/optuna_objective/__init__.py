"""Runs objectives written for Optuna (`objective=optuna`) without importing Optuna."""
