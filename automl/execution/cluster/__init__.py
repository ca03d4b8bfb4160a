"""Runs trials on the nodes of a Ray cluster, each of which has an agent that the sweep calls."""
