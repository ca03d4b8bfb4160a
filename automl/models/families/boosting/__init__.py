"""Gradient boosted trees, by scikit-learn."""
