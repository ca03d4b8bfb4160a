"""In which thread or process an admitted trial runs."""
