"""Trains models and predicts with them: families, networks, ensembles and their files."""
