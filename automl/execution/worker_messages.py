"""Defines the messages between a worker and its parent, and the numbers that both share in memory.

Messages are plain, picklable values; `worker.py` and `worker_process.py` send and receive them over
a pipe.

The shared numbers are aligned 8-byte integers, a few per worker, each written by one side only, so
that no lock is needed. Admission needs the memory that a worker holds just before and after it asks
the driver, without waiting for a busy worker: the worker writes it ten times a second, with the
number of steps it has taken, from which its pace is known. A trial needs to know at each report
whether the parent has sent anything since: asking its pipe would cost as much as the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, TypeAlias

from automl.record.lease import lease_seconds
from automl.trial import (
    DeviceId,
    Placement,
    ProcessEntry,
    Question,
    Reply,
    TrialEvent,
    TrialSpec,
    Verdict,
)

if TYPE_CHECKING:
    from ctypes import Array, c_longlong

Numbers: TypeAlias = "Array[c_longlong]"
"""The numbers of all workers. They travel to a process as it starts; a kill leaves no file."""
_ANSWERED, _SENT, _STEPS, _PROGRAMS, _LEASE, _ENDED, _HELD = range(7)


@dataclass(frozen=True)
class SharedSlot:
    """The shared numbers of one worker, with a held size and a cap for each of its devices."""

    numbers: Numbers
    number: int
    n_devices: int

    @property
    def first(self) -> int:
        """Index of the slot's first number in `numbers`."""
        return self.number * _size(self.n_devices)

    def clear(self) -> None:
        """Set all numbers to zero, before a new worker takes the slot."""
        for index in range(_size(self.n_devices)):
            self.numbers[self.first + index] = 0

    # --- the parent's side ---

    def held_bytes(self, device: int) -> int:
        """Return the bytes that the worker held of one of its devices when it last wrote."""
        return self.numbers[self.first + _HELD + device]

    @property
    def n_steps(self) -> int:
        """Steps of training that the worker had taken when it last wrote."""
        return self.numbers[self.first + _STEPS]

    @property
    def programs_bytes(self) -> int:
        """Main memory held by programs that the worker had started, when it last wrote."""
        return self.numbers[self.first + _PROGRAMS]

    def cap(self, caps_bytes: Sequence[int]) -> None:
        """Set how many bytes the worker may take of its devices, in their order; 0 is no cap."""
        for device, size in enumerate(caps_bytes[: self.n_devices]):
            self.numbers[self.first + _HELD + self.n_devices + device] = size

    def lease(self, until_seconds: float) -> None:
        """Set when the worker's lease ends, by `lease_seconds()`; the worker then ends itself."""
        self.numbers[self.first + _LEASE] = int(1000 * until_seconds)

    @property
    def has_ended(self) -> bool:
        """Whether the worker ended because its lease was over."""
        return self.numbers[self.first + _ENDED] != 0

    def answer(self) -> None:
        """Count the worker's oldest unanswered question as answered. One thread at a time."""
        self.numbers[self.first + _ANSWERED] += 1

    def sent(self) -> None:
        """Count one more message in the worker's pipe. One thread at a time."""
        self.numbers[self.first + _SENT] += 1

    # --- the worker's side ---

    @property
    def n_answered(self) -> int:
        """Number of questions for a verdict that were answered."""
        return self.numbers[self.first + _ANSWERED]

    @property
    def n_sent(self) -> int:
        """Number of messages that the parent sent."""
        return self.numbers[self.first + _SENT]

    @property
    def is_over(self) -> bool:
        """Whether this process has a lease that is over."""
        until = self.numbers[self.first + _LEASE]
        return 0 < until < 1000 * lease_seconds()

    def end(self) -> None:
        """Note that this process ends because its lease is over.

        The note stays valid if the lease is renewed before the parent reads it.
        """
        self.numbers[self.first + _ENDED] = 1

    @property
    def caps_bytes(self) -> Sequence[int]:
        """Bytes that this process may take of its devices, in their order; 0 is no cap."""
        first = self.first + _HELD + self.n_devices
        return self.numbers[first : first + self.n_devices]

    def write(self, held_bytes: Sequence[int]) -> None:
        """Write the bytes that this process holds of its devices, in their order."""
        for device, size in enumerate(held_bytes[: self.n_devices]):
            self.numbers[self.first + _HELD + device] = size

    def write_programs(self, held_bytes: int) -> None:
        """Write the main memory that programs hold which this process has started."""
        self.numbers[self.first + _PROGRAMS] = held_bytes

    def write_steps(self, n_steps: int) -> None:
        """Write how many training steps this process has taken in its life."""
        self.numbers[self.first + _STEPS] = n_steps


def make_worker_slots(n_slots: int, n_devices: int = 1) -> list[SharedSlot]:
    """Return shared slots for at most `n_slots` workers of at most `n_devices` devices each."""
    numbers: Numbers = RawArray("q", n_slots * _size(n_devices))
    return [SharedSlot(numbers, number, n_devices) for number in range(n_slots)]


def _size(n_devices: int) -> int:
    return _HELD + 2 * n_devices


@dataclass(frozen=True)
class JudgedReports:
    """Tells which reports can end their trial: reports that have the metric and reach a rung."""

    metric: str
    rungs: Callable[[int, int], Sequence[int]]
    """Returns the rungs that a step newly reaches, given the trial's last step (-1: none) and the
    step. Picklable."""


@dataclass(frozen=True)
class WorkerSetup:
    """Holds what a new worker needs to know before its first trial."""

    entry: ProcessEntry
    devices: tuple[DeviceId, ...]
    slot: SharedSlot
    judging: JudgedReports | None
    """The reports that can end their trial; None if no report can."""


# --- parent to worker; None: end ----------------------------------------------------------------


@dataclass(frozen=True)
class CarryOutTrial:
    """Tells a worker to carry out a trial, or a pack that begins with it.

    Printed output goes to the file `output_path`.
    """

    spec: TrialSpec
    placement: Placement
    output_path: str
    n_lanes: int = 1


@dataclass(frozen=True)
class NextTrialFed:
    """Answers `NextTrialAsked` with another trial for the pack, or with none."""

    spec: TrialSpec | None


@dataclass(frozen=True)
class VerdictsAnswered:
    """Carries the study's verdicts by trial; trials that go on may be left out.

    It answers `EventsForVerdict`, or comes unasked when the sweep stops. Where all trials go on no
    message is sent; the question is only counted as answered (`SharedSlot.answer`).
    """

    verdicts: Mapping[int, Verdict]


ToWorker: TypeAlias = "CarryOutTrial | NextTrialFed | VerdictsAnswered | Reply | None"

# --- worker to parent ---------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerReady:
    """Reports that the process is up and the objective ready: from here on time-outs count."""


@dataclass(frozen=True)
class EventsForVerdict:
    """Carries events with a report that the study judges, and asks for an answer.

    Other events are sent as bare sequences.
    """

    events: Sequence[TrialEvent]


@dataclass(frozen=True)
class WorkerWarning:
    """Carries a warning of the package's own logger, which the parent shows to people."""

    text: str


@dataclass(frozen=True)
class NextTrialAsked:
    """Asks for another trial of the same kind, since a lane of the pack is free."""


@dataclass(frozen=True)
class WorkerIdle:
    """Reports that the work is over, and its memory given back."""

    is_reusable: bool
    """Whether the process can take another trial: all that a trial changed is put back."""


@dataclass(frozen=True)
class ObjectiveUnavailable:
    """Reports that the objective cannot be made ready in the process, so that no trial can run."""

    cause: str
    details: str


@dataclass(frozen=True)
class CheckpointUnwritable:
    """Reports that a checkpoint cannot be written (full disk), which ends the sweep.

    The trial itself does not count as failed.
    """

    message: str


ToParent: TypeAlias = (
    "Sequence[TrialEvent] | EventsForVerdict | Question"
    " | WorkerReady | WorkerWarning | NextTrialAsked | WorkerIdle | ObjectiveUnavailable | "
    "CheckpointUnwritable"
)
