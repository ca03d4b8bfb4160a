"""Ends a sweep: ensemble, automatic refit, closing tables and the exit code."""
