"""Models of a study as one: which, by what weights, and their file."""
