"""Isolates trials that share a process: a trial's changes are put back, or end the process."""
