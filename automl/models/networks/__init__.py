"""Trains networks: alone, in packs, by folds, and in several processes."""
