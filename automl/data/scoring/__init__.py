"""Scores of predictions: metrics, baselines, intervals, findings, and ensembles' selection."""
