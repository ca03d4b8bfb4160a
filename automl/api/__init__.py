"""What Python calls: a sweep over a function, and the handle of a study."""
