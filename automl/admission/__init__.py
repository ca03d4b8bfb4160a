"""Decides when and where a trial may start: pure decisions over readings and reservations."""
