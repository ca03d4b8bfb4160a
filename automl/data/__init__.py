"""The data that trials learn from: tables come in, numpy arrays go out.

This package is the only owner of pandas and scikit-learn.
"""
