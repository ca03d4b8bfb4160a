"""Measures what a GPU, threads, precision and packs would gain trials of a space."""
