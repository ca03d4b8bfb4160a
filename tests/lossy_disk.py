"""A disk that loses at a power cut what was not flushed: what a test finds after one.

The rules of a journaling file system at its worst: a file has the content that it was last flushed
with (none, where it never was); a folder has the names that it was last flushed with, or those of
now, since names may reach the disk by themselves at any time. A conftest, or a test, imports the
fixture:

    def test_is_there_after_a_power_cut(lossy_disk: LossyDisk, tmp_path: Path) -> None:
        write_text_durably(tmp_path / "a" / "file", "text")
        assert (lossy_disk.after_power_cut() / "file").read_text() == "text"

`os.write`, `os.fsync`, `os.fdatasync` and `os.replace` are what it listens to. Only this process is
heard, and only what is written by Python's functions (SQLite flushes on its own).
"""

from __future__ import annotations

import os
import queue
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest

Inode = tuple[int, int]


class LossyDisk:
    """The folder `root` on such a disk. What is there when it is made is flushed already."""

    def __init__(self, root: Path, cuts: Path) -> None:
        self.root = root
        self.on_step: Callable[[], None] = lambda: None
        """Called after each write, flush and rename, in the thread that made it: cut there, and
        look. What it raises comes out where the flush was called."""
        self.thread: int | None = None
        """The only thread whose flushes count and are steps; None: all of them do."""
        self.flushed: queue.SimpleQueue[Path] = queue.SimpleQueue()
        """What was flushed, one after another, to be waited for."""
        self._cuts = cuts
        self._lock = threading.RLock()  # guards all below
        self._contents: dict[Inode, bytes] = {}
        self._names: dict[Inode, dict[str, Inode]] = {}
        self._kept_open: dict[Inode, int] = {}
        """So that no inode is given to another file."""
        self._failures: list[OSError] = []
        self._stepping = False
        for path in (root, *root.rglob("*")):
            self._keep(path)

    def fail_next_flush(self, error: OSError) -> None:
        """The next flush of a file raises `error`, and flushes nothing."""
        with self._lock:
            self._failures.append(error)

    def after_power_cut(self, *, names_of_now: bool = False, unflushed: float = 0.0) -> Path:
        """A folder with what is left of `root`, the flushed names or those of now, and a share of
        what was written to files since they were flushed."""
        cut = Path(mkdtemp(dir=self._cuts))
        with self._lock:
            now = self.root if names_of_now else None
            self._restore(_inode(self.root.stat()), cut, now, unflushed)
        return cut

    def after_kill(self) -> Path:
        """A folder with all of `root` as it is now: the kernel has it, whatever process dies."""
        cut = Path(mkdtemp(dir=self._cuts))
        shutil.copytree(self.root, cut, dirs_exist_ok=True)
        return cut

    def flush_all(self) -> None:
        """What the kernel does after a while."""
        with self._lock:
            for path in (self.root, *self.root.rglob("*")):
                self._keep(path)

    def content(self, path: Path) -> bytes:
        """What is left of a file."""
        return (self.after_power_cut() / path.relative_to(self.root)).read_bytes()

    def both_power_cuts(self) -> Iterator[Path]:
        """What is left with the flushed names, then with those of now."""
        for names_of_now in (False, True):
            cut = self.after_power_cut(names_of_now=names_of_now)
            yield cut
            shutil.rmtree(cut)

    def close(self) -> None:
        for fd in self._kept_open.values():
            os.close(fd)

    # --- what the os functions tell ---

    def write(self, write: Callable[[int, bytes], int], fd: int, data: bytes) -> int:
        n_bytes = write(fd, data)
        if self._hears and self.root in Path(os.readlink(f"/proc/self/fd/{fd}")).parents:
            self._step()
        return n_bytes

    def flush(self, fd: int, to_disk: Callable[[int], None]) -> None:
        if not self._hears:
            return
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        with self._lock:
            if self._failures and path.is_file():
                raise self._failures.pop()
            if path == self.root or self.root in path.parents:
                self._keep(path)
        to_disk(fd)
        self.flushed.put(path)
        self._step()

    def rename(self, rename: Callable[..., None], *paths: object, **more: object) -> None:
        rename(*paths, **more)
        if self._hears:
            self._step()

    @property
    def _hears(self) -> bool:
        return self.thread in (None, threading.get_ident())

    def _step(self) -> None:
        with self._lock:
            if self._stepping:
                return
            self._stepping = True
            try:
                self.on_step()
            finally:
                self._stepping = False

    # --- inside ---

    def _keep(self, path: Path) -> None:
        """What is on disk from now on; the lock is held, or needed by nobody yet."""
        there = path.stat()
        inode = _inode(there)
        if inode not in self._kept_open:
            self._kept_open[inode] = os.open(path, os.O_RDONLY)
        if path.is_dir():
            self._names[inode] = _names_in(path)
        else:
            self._contents[inode] = path.read_bytes()

    def _restore(self, inode: Inode, to: Path, now: Path | None, unflushed: float) -> None:
        """Make the folder `inode` at `to`; with the names of folder `now`, if given."""
        names = self._names.get(inode, {}) if now is None else _names_in(now)
        for name, inner in names.items():
            below = None if now is None else now / name
            if inner in self._names or (below is not None and below.is_dir()):
                (to / name).mkdir()
                self._restore(inner, to / name, below, unflushed)
            else:
                (to / name).write_bytes(self._left_of(inner, below, unflushed))

    def _left_of(self, inode: Inode, path: Path | None, unflushed: float) -> bytes:
        flushed = self._contents.get(inode, b"")
        fd = self._kept_open.get(inode)
        if fd is not None:
            now = os.pread(fd, os.fstat(fd).st_size, 0)
        else:
            now = b"" if path is None else path.read_bytes()
        if not now.startswith(flushed):
            return flushed
        return now[: len(flushed) + round(unflushed * (len(now) - len(flushed)))]


def _names_in(folder: Path) -> dict[str, Inode]:
    names = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed by another thread since
                names[entry.name] = _inode(entry.stat())
    return names


def _inode(there: os.stat_result) -> Inode:
    return there.st_dev, there.st_ino


@contextmanager
def no_room_beyond(size_bytes: int) -> Iterator[None]:
    """No file of this process takes a byte beyond `size_bytes`, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def listen(
    disk: LossyDisk, patch: pytest.MonkeyPatch, to_disk: Callable[[int], None] = os.fsync
) -> None:
    """Have the disk hear what this process does, until the patch is undone."""
    patch.setattr(os, "write", partial(disk.write, os.write))
    patch.setattr(os, "fsync", partial(disk.flush, to_disk=to_disk))
    patch.setattr(os, "fdatasync", partial(disk.flush, to_disk=to_disk))
    patch.setattr(os, "replace", partial(disk.rename, os.replace))
    patch.setattr(os, "rename", partial(disk.rename, os.rename))


@pytest.fixture
def lossy_disk(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LossyDisk]:
    """`tmp_path` lies on a disk that loses at a power cut what was not flushed."""
    disk = LossyDisk(tmp_path, tmp_path_factory.mktemp("cuts"))
    listen(disk, monkeypatch)
    yield disk
    disk.close()
