"""The data that a user's function returns (`data=python`), for the user's networks."""
