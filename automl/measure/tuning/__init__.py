"""`export.tune`: how fast a model is here in each way of running it, and whether it still holds."""
