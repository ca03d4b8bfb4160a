"""Logistic regression and ridge regression, by scikit-learn."""
