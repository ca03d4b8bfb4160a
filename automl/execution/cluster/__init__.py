"""Trials on the nodes of a cluster: what the sweep and each node say to each other."""
