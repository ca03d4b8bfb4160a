"""Brings what an objective logs through MLflow into its trial's own run."""
