"""Runs each admitted trial in a thread, a worker process or a process on a cluster's node."""
