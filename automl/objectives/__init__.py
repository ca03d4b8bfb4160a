"""Runs the objective of a trial: a user's function or program, or the built-in training."""
