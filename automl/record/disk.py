"""Write files and folders of a study so that a power cut leaves them whole, with the right mode.

A name is on disk once its folder is flushed. A file that may be lost (the view of a sweep, a log
for people) should not be written durably: a flush costs milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from automl.errors import StorageError

_MODE = 0o644
"""Mode of every file, reduced by the umask: a colleague may read a study, but not change it."""
_LOCK_POLL_SECONDS = 0.005
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def file_kind(mode: int) -> str:
    """Return what a file of this mode is, for people; empty for a plain file."""
    return _KINDS.get(stat.S_IFMT(mode), "")


def public_file_opener(path: str | Path, flags: int) -> int:
    """Open a file for `open(…, opener=opener)`; a new file is readable by all, within the umask."""
    return os.open(path, flags, _MODE)


def nonblocking_opener(path: str, flags: int) -> int:
    """Open a stranger's file for `open(…, opener=…)` without waiting, even if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def take_lock(fd: int, wait_seconds: float = 0.0, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file for this process, while it is open; return whether that worked in time."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_SECONDS)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path`, whole; a power cut may leave neither the old nor the new one."""
    with _replacing(path) as file:
        file.write(text.encode())


def write_durably(path: Path, text: str) -> None:
    """Replace the file at `path` atomically, and return when the new one is on disk."""
    with open_replacing(path) as file:
        file.write(text.encode())
    flush_folder(path.parent)


@contextmanager
def storage_errors(path: Path, what: str) -> Iterator[None]:
    """Raise the block's OSErrors as StorageError: the sweep stops, and no trial fails of them.

    `what` says what could not be done at `path`.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path}: {what}: {error.strerror or error}. "
            "Make room or mend the folder, and resume the study."
        ) from error


@contextmanager
def open_replacing(path: Path, check: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
    """Open a new file beside `path`; at the end it is flushed and replaces the file at `path`.

    `check` is called just before the replacement; if it raises, the old file stays. The new name
    is on disk once the folder is flushed; until then a power cut leaves the old file.
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
    try:
        beside.unlink(missing_ok=True)  # left by a killed process, perhaps with another umask
        with open(beside, "xb", opener=public_file_opener) as file:
            file_status = os.fstat(file.fileno())
            try:
                yield file
                file.flush()  # before readers see it under its name
                if not _has_name(beside, file_status):
                    raise FileExistsError(errno.EEXIST, "another process has begun to write it")
                os.replace(beside, path)
            except BaseException:
                with contextlib.suppress(OSError):  # gone with its folder; raise the first error
                    if _has_name(beside, file_status):
                        beside.unlink()
                raise
    except OSError as error:
        if error.filename in (beside, str(beside)):  # a name that no user knows
            error.filename, error.filename2 = str(path), None
        raise


def _has_name(path: Path, file: os.stat_result) -> bool:
    """Return whether the open file is still at `path`, where another process may write, too."""
    try:
        return os.path.samestat(path.stat(), file)
    except FileNotFoundError:
        return False


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Make a folder beside `path`; at the end it is flushed and replaces the one at `path`, whole.

    Old and new folder are exchanged in one step, so that readers see one of the two. The old one is
    then removed: the caller decides that it may be. Where the file system cannot exchange them,
    nothing stands at `path` for a moment.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(beside, ignore_errors=True)  # of a process of this number that was killed
    beside.mkdir()
    try:
        yield beside
        for file in beside.iterdir():
            file.chmod(file.stat().st_mode & _MODE)  # whichever library wrote it
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        flush_folder(beside)
        _put_in_place(beside, path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the old folder, or an unfinished one
    flush_folder(beside.parent)


def _put_in_place(beside: Path, path: Path) -> None:
    if not path.exists():
        beside.rename(path)
    elif not _exchange(beside, path):
        away = beside.with_suffix(".old")
        path.rename(away)
        beside.rename(path)
        shutil.rmtree(away)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step, by a call that Python lacks; return whether it worked."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # another C library
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0)


def flush_folder(path: Path) -> None:
    """Return when the names in the folder `path` are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> list[Path]:
    """Make the folder `path` and the missing folders above it.

    Returns the folders that now hold a new name, for `flush_folder` once their content is written:
    most file systems flush the names along with the content, and the call then costs nothing more.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return [folder.parent for folder in missing]
