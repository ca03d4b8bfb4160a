"""Measures before a choice: memory of objectives, speed of training, speed of exports."""
