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

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue
from typing import TypeAlias

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


class WorkerCounters(ctypes.Structure):
    """The shared numbers of a worker that do not belong to one of its devices."""

    n_answered: int
    """Number of questions for a verdict that the parent has answered."""
    n_sent: int
    """Number of messages that the parent has sent."""
    lease_milliseconds: int
    """End of the worker's lease, by `lease_seconds()`, set by the parent; 0 means no end."""
    lease_has_ended: bool
    """Whether the worker ended because its lease was over. The note stays valid if the lease is
    renewed before the parent reads it."""
    n_steps: int
    """Number of training steps that the worker has taken in its life."""
    programs_bytes: int
    """Main memory held by programs that the worker has started."""

    _fields_ = [
        (name, ctypes.c_longlong)
        for name in (
            *("n_answered", "n_sent", "lease_milliseconds"),
            *("lease_has_ended", "n_steps", "programs_bytes"),
        )
    ]


class SharedNumbers:
    """The numbers that one worker shares with its parent: counters, and two for each device.

    They travel to the worker's process as it starts; a kill leaves no file.
    """

    def __init__(self, n_devices: int) -> None:
        self.counters: WorkerCounters = RawValue(WorkerCounters)
        self.held_bytes = RawArray("q", n_devices)
        """Bytes that the worker held of its devices, in their order, when it last wrote."""
        self.caps_bytes = RawArray("q", n_devices)
        """Bytes that the worker may take of its devices, set by the parent; 0 is no cap."""

    def lease(self, until_seconds: float) -> None:
        """Set when the worker's lease ends, by `lease_seconds()`; the worker then ends itself."""
        self.counters.lease_milliseconds = int(1000 * until_seconds)

    @property
    def lease_is_over(self) -> bool:
        """Whether the worker has a lease that is over."""
        return 0 < self.counters.lease_milliseconds < 1000 * lease_seconds()

    def write_held(self, held_bytes: Sequence[int]) -> None:
        """Write the bytes that the worker holds of its devices; others than its own count not."""
        own = held_bytes[: len(self.held_bytes)]
        self.held_bytes[: len(own)] = own


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
    numbers: SharedNumbers
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
    message is sent; the question is only counted as answered (`WorkerCounters.n_answered`).
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
