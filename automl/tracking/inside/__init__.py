"""MLflow inside a trial: what an objective logs through it goes to the trial's own run."""
