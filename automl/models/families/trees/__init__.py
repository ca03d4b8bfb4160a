"""Forests of trees, by scikit-learn."""
