"""Numbers that a worker and its parent share in memory: read often, with nobody waiting.

Three aligned 8-byte numbers per worker, each written by one side only, so that no lock is needed.
Admission needs what a worker holds of its device just before and after it asks the driver, without
waiting for a worker that is busy: the worker writes it ten times a second. And a trial needs to
know at each report what the parent has said since: asking its pipe would cost as much as the
report.
"""

from __future__ import annotations

from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ctypes import Array, c_longlong

Numbers: TypeAlias = "Array[c_longlong]"
"""Of all workers. Travels to a process as it starts; no file is left behind by a kill."""
_HELD, _ANSWERED, _SENT = range(3)
_SLOT_NUMBERS = 3


class Slots:
    """The parent's side: as many slots as there can be workers."""

    def __init__(self, n_slots: int) -> None:
        self.numbers: Numbers = RawArray("q", n_slots * _SLOT_NUMBERS)

    def clear(self, slot: int) -> None:
        """Before a new worker takes the slot."""
        for which in (_HELD, _ANSWERED, _SENT):
            self.numbers[slot * _SLOT_NUMBERS + which] = 0

    def held_bytes(self, slot: int) -> int:
        """What the slot's worker held of its device when it last wrote."""
        return self.numbers[slot * _SLOT_NUMBERS + _HELD]

    def answer(self, slot: int) -> None:
        """Its oldest question without an answer has one. From one thread at a time."""
        self.numbers[slot * _SLOT_NUMBERS + _ANSWERED] += 1

    def sent(self, slot: int) -> None:
        """One more message is in its pipe. From one thread at a time."""
        self.numbers[slot * _SLOT_NUMBERS + _SENT] += 1


class OwnSlot:
    """The worker's side."""

    def __init__(self, numbers: Numbers, slot: int) -> None:
        self._numbers, self._first = numbers, slot * _SLOT_NUMBERS

    @property
    def n_answered(self) -> int:
        """Questions for a verdict that have their answer."""
        return self._numbers[self._first + _ANSWERED]

    @property
    def n_sent(self) -> int:
        """Messages that the parent sent."""
        return self._numbers[self._first + _SENT]

    def write(self, held_bytes: int) -> None:
        """What this process holds of its device."""
        self._numbers[self._first + _HELD] = held_bytes
