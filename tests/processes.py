"""Whether processes are there, for tests that end them."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Not where it is dead and only not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # none from the start, or none between opening and reading
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
