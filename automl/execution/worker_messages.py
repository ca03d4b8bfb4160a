"""What parent and worker say to each other over their pipe. Plain, picklable values.

Numbers that a worker and its parent share in memory: read often, with nobody waiting.

Aligned 8-byte numbers, some per worker, each written by one side only, so that no lock is needed.
Admission needs what a worker holds of its devices just before and after it asks the driver, without
waiting for a worker that is busy: the worker writes it ten times a second, and how many steps it
has taken, from which its pace is known. And a trial needs to know at each report what the parent
has said since: asking its pipe would cost as much as the report.
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
"""Of all workers. Travels to a process as it starts; no file is left behind by a kill."""
_ANSWERED, _SENT, _STEPS, _PROGRAMS, _LEASE, _ENDED, _HELD = range(7)


@dataclass(frozen=True)
class SharedSlot:
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


def make_slots(n_slots: int, n_devices: int = 1) -> list[SharedSlot]:
    """As many as there can be workers, of so many devices each."""
    numbers: Numbers = RawArray("q", n_slots * _size(n_devices))
    return [SharedSlot(numbers, number, n_devices) for number in range(n_slots)]


def _size(n_devices: int) -> int:
    return _HELD + 2 * n_devices


@dataclass(frozen=True)
class JudgedReports:
    """Which reports can end their trial: those with the metric that reach a rung."""

    metric: str
    rungs: Callable[[int, int], Sequence[int]]
    """Those newly reached by a step after the trial's last one (-1: none); picklable."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a new worker is told."""

    entry: ProcessEntry
    devices: tuple[DeviceId, ...]
    slot: SharedSlot
    judging: JudgedReports | None
    """None: no report can."""


# --- parent to worker; None: end ----------------------------------------------------------------


@dataclass(frozen=True)
class CarryOutTrial:
    """Carry out this trial, or a pack that begins with it; what it prints goes to a file."""

    spec: TrialSpec
    placement: Placement
    output_path: str
    n_lanes: int = 1


@dataclass(frozen=True)
class NextTrialFed:
    """The answer to `NextTrialAsked`: another trial for the pack, or none now."""

    spec: TrialSpec | None


@dataclass(frozen=True)
class VerdictsAnswered:
    """The study's verdicts by trial; those that go on may be left out.

    To `EventsForVerdict`, or to nothing: the sweep stops. Where all go on no message is sent, it
    is only
    counted as answered (`worker_messages.py`).
    """

    verdicts: Mapping[int, Verdict]


ToWorker: TypeAlias = "CarryOutTrial | NextTrialFed | VerdictsAnswered | Reply | None"

# --- worker to parent ---------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerReady:
    """The process is up and the objective ready: from here on time-outs count."""


@dataclass(frozen=True)
class EventsForVerdict:
    """Events with a report that the study judges: it wants an answer. Other events come bare."""

    events: Sequence[TrialEvent]


@dataclass(frozen=True)
class WorkerWarning:
    """A warning for people, from the package's own logger."""

    text: str


@dataclass(frozen=True)
class NextTrialAsked:
    """A lane is free: is there another trial of this kind?"""


@dataclass(frozen=True)
class WorkerIdle:
    """The work is over, and its memory given back."""

    spent: bool = False
    """The process is fit for no other: what a trial left there cannot be put back."""


@dataclass(frozen=True)
class ObjectiveUnavailable:
    """The objective cannot be made ready here; no trial can run."""

    cause: str
    details: str


@dataclass(frozen=True)
class CheckpointUnwritable:
    """A checkpoint cannot be written (full disk): not the trial's failure, the sweep's."""

    message: str


ToParent: TypeAlias = (
    "Sequence[TrialEvent] | EventsForVerdict | Question"
    " | WorkerReady | WorkerWarning | NextTrialAsked | WorkerIdle | ObjectiveUnavailable | "
    "CheckpointUnwritable"
)
