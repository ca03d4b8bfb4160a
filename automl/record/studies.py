"""The studies in a folder."""

from __future__ import annotations

from pathlib import Path


def study_names(folder: Path) -> list[str]:
    """The studies in `folder`, the one that was at work last first.

    One that may not be looked into is left out, and hides no other.
    """
    found = {path.name: _last_seconds(path) for path in folder.glob("*")}
    studies = {name: seconds for name, seconds in found.items() if seconds is not None}
    return sorted(studies, key=studies.__getitem__, reverse=True)


def _last_seconds(path: Path) -> float | None:
    """When a sweep was last seen at work in the directory; None: it is no study."""
    try:
        stored = (path / "config.yaml").stat().st_mtime
    except OSError:
        return None
    try:
        return max(stored, (path / "status.json").stat().st_mtime)
    except OSError:
        return stored
