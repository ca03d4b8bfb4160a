"""Numbers that a worker and its parent share in memory: read often, with nobody waiting.

Aligned 8-byte numbers, some per worker, each written by one side only, so that no lock is needed.
Admission needs what a worker holds of its devices just before and after it asks the driver, without
waiting for a worker that is busy: the worker writes it ten times a second, and how many steps it
has taken, from which its pace is known. And a trial needs to know at each report what the parent
has said since: asking its pipe would cost as much as the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, TypeAlias

from automl.record.lease_clock import lease_seconds

if TYPE_CHECKING:
    from ctypes import Array, c_longlong

Numbers: TypeAlias = "Array[c_longlong]"
"""Of all workers. Travels to a process as it starts; no file is left behind by a kill."""
_ANSWERED, _SENT, _STEPS, _PROGRAMS, _LEASE, _ENDED, _HELD = range(7)


@dataclass(frozen=True)
class Slot:
    """The numbers of one worker; what it holds and its cap come once for each device that a worker
    may have."""

    numbers: Numbers
    number: int
    n_devices: int

    @property
    def first(self) -> int:
        """Where its numbers begin."""
        return self.number * _size(self.n_devices)

    def clear(self) -> None:
        """Before a new worker takes the slot."""
        for which in range(_size(self.n_devices)):
            self.numbers[self.first + which] = 0

    # --- the parent's side ---

    def held_bytes(self, device: int) -> int:
        """What the worker held of that of its devices when it last wrote."""
        return self.numbers[self.first + _HELD + device]

    @property
    def n_steps(self) -> int:
        """Steps of training that the worker had taken when it last wrote."""
        return self.numbers[self.first + _STEPS]

    @property
    def programs_bytes(self) -> int:
        """Main memory that programs held, which the worker had started, when it last wrote."""
        return self.numbers[self.first + _PROGRAMS]

    def cap(self, caps_bytes: Sequence[int]) -> None:
        """What the worker may take of its devices from now on, in their order; 0: no cap."""
        for device, size in enumerate(caps_bytes[: self.n_devices]):
            self.numbers[self.first + _HELD + self.n_devices + device] = size

    def lease(self, until_seconds: float) -> None:
        """The worker ends by itself when `lease_seconds()` is past that."""
        self.numbers[self.first + _LEASE] = int(1000 * until_seconds)

    @property
    def has_ended(self) -> bool:
        """Whether the worker ended because its lease was over."""
        return self.numbers[self.first + _ENDED] != 0

    def answer(self) -> None:
        """Its oldest question without an answer has one. From one thread at a time."""
        self.numbers[self.first + _ANSWERED] += 1

    def sent(self) -> None:
        """One more message is in its pipe. From one thread at a time."""
        self.numbers[self.first + _SENT] += 1

    # --- the worker's side ---

    @property
    def n_answered(self) -> int:
        """Questions for a verdict that have their answer."""
        return self.numbers[self.first + _ANSWERED]

    @property
    def n_sent(self) -> int:
        """Messages that the parent sent."""
        return self.numbers[self.first + _SENT]

    @property
    def is_over(self) -> bool:
        """Whether this process was lent its devices for a time, which is up."""
        until = self.numbers[self.first + _LEASE]
        return 0 < until < 1000 * lease_seconds()

    def end(self) -> None:
        """This process ends for that reason, whatever its lease is by the time that it is seen."""
        self.numbers[self.first + _ENDED] = 1

    @property
    def caps_bytes(self) -> Sequence[int]:
        """What this process may take of its devices, in their order; 0: no cap."""
        first = self.first + _HELD + self.n_devices
        return self.numbers[first : first + self.n_devices]

    def write(self, held_bytes: Sequence[int]) -> None:
        """What this process holds of its devices, in their order."""
        for device, size in enumerate(held_bytes[: self.n_devices]):
            self.numbers[self.first + _HELD + device] = size

    def write_programs(self, held_bytes: int) -> None:
        """Main memory that programs hold which this process has started."""
        self.numbers[self.first + _PROGRAMS] = held_bytes

    def write_steps(self, n_steps: int) -> None:
        """What this process has taken of them in its life."""
        self.numbers[self.first + _STEPS] = n_steps


def make_slots(n_slots: int, n_devices: int = 1) -> list[Slot]:
    """As many as there can be workers, of so many devices each."""
    numbers: Numbers = RawArray("q", n_slots * _size(n_devices))
    return [Slot(numbers, number, n_devices) for number in range(n_slots)]


def _size(n_devices: int) -> int:
    return _HELD + 2 * n_devices
