"""Trials that train several times, each time with another seed (`study.repeats`)."""
