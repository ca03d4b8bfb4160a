"""A user's objective measured before it runs: no GPU, no device memory, little compute."""
