"""Measures the step time of a trial for several ways of training it, in a process of its own."""
