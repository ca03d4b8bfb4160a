"""What a power cut must leave, and who may read it: how files and folders of a study are made.

A name is on disk once its folder is flushed. What may be lost (a picture of a sweep, a log for
people) needs none of this, and should not pay for it: a flush costs milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
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
    with open_replacing(path) as file:
        file.write(text.encode())
    flush_folder(path.parent)


@contextmanager
def open_replacing(path: Path, check: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
    """A file beside `path` that is flushed and takes its place in the end, unless `check`, which is
    called just before, raises.

    The name is on disk once the folder is flushed; until then a power cut leaves the old file.
    """
    with _replacing(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
        if check is not None:
            check()


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    beside = path.with_name(f"{path.name}.part")
    beside.unlink(missing_ok=True)  # of one who was killed, and had another umask
    with open(beside, "xb", opener=opener) as made:
        own = os.fstat(made.fileno())
        try:
            yield made
            made.flush()  # before it is seen under its name
            if not _is(beside, own):
                raise FileExistsError(errno.EEXIST, "another process has begun to write it, too")
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):  # gone with its folder: the first trouble counts
                if _is(beside, own):
                    beside.unlink()
            raise


def _is(path: Path, file: os.stat_result) -> bool:
    """Whether the file, which is open, still has this name: the other who writes a file of this
    name at the same time has put its own there."""
    try:
        return os.path.samestat(path.stat(), file)
    except FileNotFoundError:
        return False


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` that is flushed and takes its place in the end, whole.

    What stood there is exchanged in one step, so that who opens it sees the old one or the new, and
    is then removed: it is for the caller to say that it may be. Where the file system cannot
    exchange, nothing stands there for a moment.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(beside, ignore_errors=True)  # of a process of this number that was killed
    beside.mkdir()
    try:
        yield beside
        for file in beside.iterdir():
            file.chmod(file.stat().st_mode & _MODE)  # whoever wrote it
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        flush_folder(beside)
        _put_in_place(beside, path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the old one now, or what failed
    flush_folder(beside.parent)


def _put_in_place(beside: Path, path: Path) -> None:
    if not path.exists():
        beside.rename(path)
    elif not _exchange(beside, path):
        away = beside.with_suffix(".old")
        path.rename(away)
        beside.rename(path)
        shutil.rmtree(away)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, which Linux can and Python has no name for."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # another C library
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


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
