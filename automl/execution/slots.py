"""Numbers that a worker and its parent share in memory: read often, with nobody waiting.

Three aligned 8-byte numbers per worker, each written by one side only, so that no lock is needed.
Admission needs what a worker holds of its device just before and after it asks the driver, without
waiting for a worker that is busy: the worker writes it ten times a second. And a trial needs to
know at each report that the one before was answered: taking a message for it
would cost as much as the report.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Callable

_INTERVAL_SECONDS = 0.1
_NUMBER = struct.Struct("=q")
_HELD, _ANSWERED, _CALLED = range(3)
_SLOT_BYTES = 3 * _NUMBER.size


class _Numbers:
    """Some slots, mapped into this process."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 0)

    def get(self, slot: int, which: int) -> int:
        value: int = _NUMBER.unpack_from(self._map, slot * _SLOT_BYTES + which * _NUMBER.size)[0]
        return value

    def set(self, slot: int, which: int, value: int) -> None:
        _NUMBER.pack_into(self._map, slot * _SLOT_BYTES + which * _NUMBER.size, value)

    def close(self) -> None:
        self._map.close()


class Slots:
    """The parent's side: as many slots as there can be workers."""

    def __init__(self, n_slots: int) -> None:
        fd, self.path = tempfile.mkstemp(prefix="automl-workers-")
        os.ftruncate(fd, n_slots * _SLOT_BYTES)
        self._numbers = _Numbers(fd)
        os.close(fd)

    def clear(self, slot: int) -> None:
        """Before a new worker takes the slot."""
        for which in (_HELD, _ANSWERED, _CALLED):
            self._numbers.set(slot, which, 0)

    def held_bytes(self, slot: int) -> int:
        """What the slot's worker held of its device when it last wrote."""
        return self._numbers.get(slot, _HELD)

    def answer(self, slot: int) -> None:
        """Its oldest report without an answer is answered: all go on. From one thread at a time."""
        self._numbers.set(slot, _ANSWERED, self._numbers.get(slot, _ANSWERED) + 1)

    def call(self, slot: int) -> None:
        """A message that it does not wait for is in its pipe. From one thread at a time."""
        self._numbers.set(slot, _CALLED, self._numbers.get(slot, _CALLED) + 1)

    def close(self) -> None:
        self._numbers.close()
        os.unlink(self.path)


class OwnSlot:
    """The worker's side."""

    def __init__(self, path: str, slot: int) -> None:
        with open(path, "r+b") as file:
            self._numbers = _Numbers(file.fileno())
        self._slot = slot

    @property
    def n_answered(self) -> int:
        """Reports whose answer is that all go on."""
        return self._numbers.get(self._slot, _ANSWERED)

    @property
    def n_called(self) -> int:
        """Messages sent that nobody asked for."""
        return self._numbers.get(self._slot, _CALLED)

    def keep_writing(self, held_bytes: Callable[[], int]) -> None:
        """Write what `held_bytes` says, in a thread, until the process ends."""
        self._held_bytes = held_bytes
        threading.Thread(target=self._run, name="own-slot", daemon=True).start()

    def write(self) -> None:
        """Write it now."""
        self._numbers.set(self._slot, _HELD, self._held_bytes())

    def _run(self) -> None:
        never = threading.Event()
        while not never.wait(_INTERVAL_SECONDS):
            self.write()
