"""Measures for `export.tune` the speed and the loss of a model in each way of running it here."""
