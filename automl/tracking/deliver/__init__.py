"""Delivers a study's events to MLflow, in a process of its own."""
