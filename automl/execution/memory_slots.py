"""What each worker holds of its device, in memory that it shares with the parent.

Admission needs this figure just before and after it asks the driver, without waiting for a worker
that is busy. A worker writes it ten times a second; the parent only reads. One aligned 8-byte
number per worker, so that no lock is needed.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Callable

_INTERVAL_SECONDS = 0.1
_ITEM = struct.Struct("=q")


class MemorySlots:
    """The parent's side: as many slots as there can be workers."""

    def __init__(self, n_slots: int) -> None:
        fd, self.path = tempfile.mkstemp(prefix="automl-memory-")
        os.ftruncate(fd, n_slots * _ITEM.size)
        self._map = mmap.mmap(fd, n_slots * _ITEM.size)
        os.close(fd)

    def clear(self, slot: int) -> None:
        """Before a new worker takes the slot."""
        _ITEM.pack_into(self._map, slot * _ITEM.size, 0)

    def read(self, slot: int) -> int:
        """Bytes that the slot's worker held when it last wrote."""
        held: int = _ITEM.unpack_from(self._map, slot * _ITEM.size)[0]
        return held

    def close(self) -> None:
        self._map.close()
        os.unlink(self.path)


class SlotWriter:
    """The worker's side: writes what `held_bytes` says, in a thread, until the process ends."""

    def __init__(self, path: str, slot: int, held_bytes: Callable[[], int]) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._offset = slot * _ITEM.size
        self._held_bytes = held_bytes
        threading.Thread(target=self._run, name="memory-slot", daemon=True).start()

    def write(self) -> None:
        _ITEM.pack_into(self._map, self._offset, self._held_bytes())

    def _run(self) -> None:
        never = threading.Event()
        while not never.wait(_INTERVAL_SECONDS):
            self.write()
