"""The data that a function of the user's returns (`data=python`), for networks of the user's."""
