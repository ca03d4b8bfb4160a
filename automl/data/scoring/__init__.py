"""Scores of predictions: metrics, baselines, intervals, and findings."""
