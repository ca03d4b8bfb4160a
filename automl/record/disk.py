"""What a power cut must leave, and who may read it: how files and folders of a study are made.

A name is on disk once its folder is flushed. What may be lost (a picture of a sweep, a log for
people) needs none of this, and should not pay for it: a flush costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_MODE = 0o644
"""Of every file, less what the umask takes away: a colleague may look at a study, and only look."""


def opener(path: str | Path, flags: int) -> int:
    """As `open` takes it: a file that is made by it can be read by all, but for the umask."""
    return os.open(path, flags, _MODE)


def open_at_once(path: str, flags: int) -> int:
    """As `open` takes it, for what may be anybody's: a pipe is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one, whole; a power cut may leave neither."""
    with _replacing(path) as file:
        file.write(text.encode())


def write_durably(path: Path, text: str) -> None:
    """Write atomically, and return when the new file is on disk."""
    with replacing(path) as file:
        file.write(text.encode())
    flush_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that is flushed and takes its place in the end.

    The name is on disk once the folder is flushed; until then a power cut leaves the old file.
    """
    with _replacing(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.unlink(missing_ok=True)  # of one who was killed, and had another umask
        with open(beside, "xb", opener=opener) as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):  # gone with its folder: what went wrong first counts
            beside.unlink()
        raise


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
