"""What a sweep on a Ray cluster says that is not as it should be."""

from __future__ import annotations

from tests.end_to_end.program import Done

FIXED = "this cluster has no autoscaler: it stays as large as it is\n"


def trouble(done: Done) -> str:
    """Its stderr, but for what is said once where trials wait for some seconds, as they do on a
    busy machine."""
    return done.stderr.replace(FIXED, "", 1)
