"""Who a process is, for words like `held by pid 4121 (python, user ann)`."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from functools import lru_cache

import psutil


def name_and_user(pid: int) -> tuple[str | None, str | None]:
    """Name and user of a process; (None, None) for one that is gone or not shown to us."""
    try:
        return _look_up(pid, psutil.Process(pid).create_time())
    except (psutil.Error, OSError):
        return None, None


def started_by(pid: int, ours: Set[int]) -> int | None:
    """Which of our processes started this one, itself or by way of others; None: none of them."""
    with suppress(psutil.Error, OSError):
        return next((p.pid for p in psutil.Process(pid).parents() if p.pid in ours), None)
    return None


@lru_cache(maxsize=256)
def _look_up(pid: int, created_seconds: float) -> tuple[str | None, str | None]:
    """Kept: a user's name may come from a directory server. Pids come again, births do not."""
    process = psutil.Process(pid)
    with process.oneshot():
        return process.name(), process.username()
