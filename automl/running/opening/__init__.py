"""Opens what a sweep works with: its study, its machines, its executor, its delivery."""
