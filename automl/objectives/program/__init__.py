"""Runs any program as objective: passes it its params, and finds metrics in what it prints."""
