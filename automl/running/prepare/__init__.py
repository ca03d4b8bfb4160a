"""Checks a config and derives all that a sweep has to know; keeps nothing open."""
