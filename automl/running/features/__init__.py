"""What a sweep does besides searching: ensemble, refit at its end, tables, report page."""
