"""Receives what an objective reports: metrics, tags, checkpoints and memory peaks."""
