"""All the ways to write a loop, by name; each runs on `trial.device`, so that it can be surveyed
for a GPU and really run on the CPU."""

from __future__ import annotations

from tests.measure.survey import unusual_ways, usual_ways
from tests.measure.survey.way import MLP, WAYS

__all__ = ["MLP", "WAYS", "unusual_ways", "usual_ways"]
