"""A folder for the Python path of programs that log to W&B; `wandb/` is what they import."""
