"""What Python calls: a sweep, the handle of a study, our settings for Hydra applications."""
