"""The fixtures of the tests of models, for what these train."""

from __future__ import annotations

from tests.models.conftest import disc, one_thread, plane

__all__ = ["disc", "one_thread", "plane"]
