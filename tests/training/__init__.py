"""The place of a network that a stored study names."""
