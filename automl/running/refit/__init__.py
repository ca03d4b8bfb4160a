"""The final training of a study's winner: chosen, trained as a small study of its own, and
saved."""
