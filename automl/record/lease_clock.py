"""The clock of leases. It goes on while the machine sleeps, as those of other machines do."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's; its monotonic clock stands still meanwhile."""


def lease_seconds() -> float:
    """Since a moment that is the same for all processes of the machine. Never goes back."""
    return time.clock_gettime(_CLOCK)
