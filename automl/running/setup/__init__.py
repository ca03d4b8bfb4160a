"""Prepares a sweep: checks its config, opens its parts, finds its machines."""
