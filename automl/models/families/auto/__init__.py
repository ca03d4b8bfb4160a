"""Families as a choice of each trial: `model=auto`."""
