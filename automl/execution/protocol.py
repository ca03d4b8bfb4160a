"""What parent and worker say to each other over their pipe. Plain, picklable values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from automl.execution.slots import Slot
from automl.trial import (
    DeviceId,
    Entry,
    Placement,
    Question,
    Reply,
    TrialEvent,
    TrialSpec,
    Verdict,
)


@dataclass(frozen=True)
class Judging:
    """Which reports can end their trial: those with the metric that reach a rung."""

    metric: str
    rungs: Callable[[int, int], Sequence[int]]
    """Those newly reached by a step after the trial's last one (-1: none); picklable."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a new worker is told."""

    entry: Entry
    devices: tuple[DeviceId, ...]
    slot: Slot
    judging: Judging | None
    """None: no report can."""


# --- parent to worker; None: end ----------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Carry out this trial, or a pack that begins with it; what it prints goes to a file."""

    spec: TrialSpec
    placement: Placement
    output_path: str
    n_lanes: int = 1


@dataclass(frozen=True)
class Fed:
    """The answer to `Next`: another trial for the pack, or none now."""

    spec: TrialSpec | None


@dataclass(frozen=True)
class Answer:
    """The study's verdicts by trial; those that go on may be left out.

    To `ForVerdict`, or to nothing: the sweep stops. Where all go on no message is sent, it is only
    counted as answered (`slots.py`).
    """

    verdicts: Mapping[int, Verdict]


ToWorker: TypeAlias = "Work | Fed | Answer | Reply | None"

# --- worker to parent ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """The process is up and the objective ready: from here on time-outs count."""


@dataclass(frozen=True)
class ForVerdict:
    """Events with a report that the study judges: it wants an answer. Other events come bare."""

    events: Sequence[TrialEvent]


@dataclass(frozen=True)
class Said:
    """A warning for people, from the package's own logger."""

    text: str


@dataclass(frozen=True)
class Next:
    """A lane is free: is there another trial of this kind?"""


@dataclass(frozen=True)
class Idle:
    """The work is over, and its memory given back."""

    spent: bool = False
    """The process is fit for no other: what a trial left there cannot be put back."""


@dataclass(frozen=True)
class CannotOpen:
    """The objective cannot be made ready here; no trial can run."""

    cause: str
    details: str


@dataclass(frozen=True)
class CannotStore:
    """A checkpoint cannot be written (full disk): not the trial's failure, the sweep's."""

    message: str


ToParent: TypeAlias = (
    "Sequence[TrialEvent] | ForVerdict | Question"
    " | Begun | Said | Next | Idle | CannotOpen | CannotStore"
)
