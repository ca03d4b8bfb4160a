"""What `release` is made of: its steps, what of them is done, and what stops it."""
