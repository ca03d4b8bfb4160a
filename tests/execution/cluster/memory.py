"""What Ray's own processes hold: their object stores, and their memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_PIECE_BYTES = 2**24
_MOST_BYTES = 2**30
"""Larger mappings are reserved, and hardly used."""


def pids_of(cluster: Any, name: str) -> list[int]:
    """Of `ray.cluster_utils`' cluster, on all of its nodes."""
    found = [node.all_processes.get(name, []) for node in cluster.list_all_nodes()]
    return [info.process.pid for processes in found for info in processes]


def in_stores(cluster: Any, text: bytes) -> bool:
    """Whether it lies in an object store: a file that its raylet alone has a name for."""
    return any(
        text in piece
        for pid in pids_of(cluster, "raylet")
        for fd in Path(f"/proc/{pid}/fd").iterdir()
        if "/dev/shm/plasma" in _link(fd)
        for piece in _pieces(fd, len(text))
    )


def in_memory(pid: int, text: bytes) -> bool:
    """Whether a process of this machine, one that this one has started, has it in its memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for begin, end in _writable(pid):
            with suppress(OSError):  # not to be read, or gone
                memory.seek(begin)
                if text in memory.read(end - begin):
                    return True
    return False


def mapped(pid: int) -> str:
    """What the kernel says of the process's memory, with the files that parts of it are of."""
    return Path(f"/proc/{pid}/maps").read_text()


def _link(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # closed meanwhile
        return ""


def _pieces(path: Path, overlap: int) -> Iterator[bytes]:
    """What was ever written of a file that is mostly holes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        at, size = 0, os.fstat(fd).st_size
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:  # holes alone are left
                return
            end = os.lseek(fd, at, os.SEEK_HOLE)
            while at < end:
                piece = os.pread(fd, min(_PIECE_BYTES + overlap, end - at), at)
                yield piece
                at += _PIECE_BYTES
            at = end
    finally:
        os.close(fd)


def _writable(pid: int) -> Iterator[tuple[int, int]]:
    for line in mapped(pid).splitlines():
        where, rights, *_ = line.split()
        begin, end = (int(word, 16) for word in where.split("-"))
        if rights.startswith("rw-p") and end - begin < _MOST_BYTES:
            yield begin, end
