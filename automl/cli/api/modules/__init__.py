"""Modules of the package by their short names: `automl.sklearn` is `sklearn.py` here."""
