"""`hydra/sweeper=automl`: sweeps that a Hydra application starts by its own `--multirun`."""
