"""Writes and reads the checkpoint files of trials, with torch and without."""
