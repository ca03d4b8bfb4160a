"""The final training of a study's winner: chosen, made a small study of its own, run, kept."""
