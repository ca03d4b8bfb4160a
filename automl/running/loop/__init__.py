"""Decides in the main thread which trials are asked for, placed, retried and stopped."""
