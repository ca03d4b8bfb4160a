"""Folders whose names a power cut must leave: a name is on disk once its folder is flushed.

What may be lost (a picture of a sweep, a log for people) needs none of this, and should not pay for
it: a flush costs milliseconds.
"""

from __future__ import annotations

import os
from pathlib import Path


def flush_folder(path: Path) -> None:
    """Return when the names in the folder `path` are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> list[Path]:
    """Make the folder `path` and those above it that are missing.

    Returns the folders that hold a new name by that, for `flush_folder` once their content is
    written: on most file systems that is flushed along, and then costs nothing more.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [folder.parent for folder in missing]
