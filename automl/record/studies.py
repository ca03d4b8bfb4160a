"""The studies in a folder."""

from __future__ import annotations

from pathlib import Path


def study_names(folder: Path) -> list[str]:
    """The studies in `folder`, the one that was at work last first."""

    def last_seconds(path: Path) -> float:
        files = (path, path.parent / "status.json")
        return max(file.stat().st_mtime for file in files if file.exists())

    stored = sorted(folder.glob("*/config.yaml"), key=last_seconds, reverse=True)
    return [path.parent.name for path in stored]
