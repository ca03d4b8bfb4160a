"""What tests of all parts use."""

from __future__ import annotations

from tests.lossy_disk import lossy_disk

__all__ = ["lossy_disk"]
