"""Data of one's own: what a function of the user's gives, for networks of the user's."""
