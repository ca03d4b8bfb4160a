"""Hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial."""
