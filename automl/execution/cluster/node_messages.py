"""What the sweep and the agent of a node say to each other. Plain, picklable values.

Both ways are numbered, so that nothing is lost or done twice when a call has to be made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.worker_process import WorkerLimits
from automl.trial import (
    DeviceId,
    Placement,
    ProcessId,
    Question,
    TrialEvent,
    TrialSpec,
    Verdict,
)

Files: TypeAlias = Mapping[str, bytes]
"""Contents by path below the study's folder."""


@dataclass(frozen=True)
class NodeSetup:
    """What an agent is told before the first trial, beside what its workers train with."""

    limits: WorkerLimits
    study: str
    """Path of the study's folder where the sweep runs."""
    marker: str
    """A file there, and its content: who sees it shares the folder."""
    marked: str
    stored: CheckpointStore | None = None
    """Where checkpoints are kept that do not lie in a folder that all see."""
    stores_shared: bool = False
    """Keep there, too, what lies in the study's folder: other sweeps may not see that."""


# --- the sweep to an agent ----------------------------------------------------------------------


@dataclass(frozen=True)
class BeginExecution:
    """Carry out these trials. `files` is what is kept of them, where the folder is not shared."""

    key: int
    specs: Sequence[TrialSpec]
    n_lanes: int
    placement: Placement
    files: Files


@dataclass(frozen=True)
class CallReplied:
    """To a call; a call that failed tells why."""

    call: int
    value: object = None
    error: str | None = None


@dataclass(frozen=True)
class NextTrialGiven:
    """The reply to `NextTrialWanted`."""

    spec: TrialSpec | None
    files: Files = field(default_factory=dict)


@dataclass(frozen=True)
class EventsJudged:
    """Verdicts on events that were `EventsNoted`, where a trial is not to go on."""

    key: int
    verdicts: Mapping[int, Verdict]


@dataclass(frozen=True)
class StopTrials:
    """See `Executor.stop_trials`."""


@dataclass(frozen=True)
class KillWorkers:
    """See `Executor.kill`."""

    cause: str


@dataclass(frozen=True)
class EndTrials:
    """See `Executor.end_trials`."""

    trials: frozenset[int]
    cause: str


@dataclass(frozen=True)
class CapMemory:
    """See `Executor.cap_memory`."""

    caps: Mapping[int, Mapping[DeviceId, int]]


@dataclass(frozen=True)
class EndIdle:
    """See `Executor.end_idle`."""

    devices: frozenset[DeviceId]


ToAgent: TypeAlias = (
    "BeginExecution | CallReplied | EventsJudged | StopTrials | KillWorkers | EndTrials | "
    "CapMemory | EndIdle"
)


@dataclass(frozen=True)
class CommandsTold:
    """Commands in their order."""

    first: int = 0
    """Number of the first one."""
    commands: Sequence[ToAgent] = ()


# --- an agent to the sweep ----------------------------------------------------------------------


@dataclass(frozen=True)
class EventsAwaitingVerdict:
    """Events of an execution, with the files that they tell of; waits for the verdicts."""

    key: int
    call: int
    events: Sequence[TrialEvent]
    files: Files


@dataclass(frozen=True)
class TrialTaken:
    """The next of the trials that it was begun with is carried out now."""

    key: int
    number: int


@dataclass(frozen=True)
class EventsNoted:
    """Events of an execution on which nobody waits for a verdict, with the files that they tell
    of."""

    key: int
    events: Sequence[TrialEvent]
    files: Files


@dataclass(frozen=True)
class NextTrialWanted:
    """A lane is free: is there another trial of this kind? Waits for `NextTrialGiven`."""

    key: int
    call: int


@dataclass(frozen=True)
class TrialQuestion:
    """A trial asks, and waits for the reply."""

    key: int
    call: int
    question: Question


@dataclass(frozen=True)
class ExecutionOver:
    """The execution is over; what it raised, if anything."""

    key: int
    error: Exception | None


@dataclass(frozen=True)
class AgentWarning:
    """A warning for people."""

    text: str


FromExecution: TypeAlias = (
    "EventsAwaitingVerdict | TrialTaken | EventsNoted | NextTrialWanted | TrialQuestion | "
    "ExecutionOver"
)
ToSweep: TypeAlias = "FromExecution | AgentWarning"
ANSWERED = (EventsAwaitingVerdict, NextTrialWanted, TrialQuestion, ExecutionOver)
"""Each wants a reply, or leaves room for what begins next."""


@dataclass(frozen=True)
class PollAnswer:
    """An agent's answer to a poll."""

    first: int
    """Number of the first message."""
    messages: Sequence[ToSweep]
    arrived_seconds: float
    """When the poll came in, by the node's `time.monotonic()`."""
    lease_clock_seconds: float
    """The node's `lease_seconds()` as this was said; comes back with the next poll, and the node's
    workers live on for a time from then."""
    reading: object
    """Of the node's devices; None: there is none that was not sent yet."""
    idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]
    n_steps: Mapping[int, int]
    ended: str | None = None
    """Why its workers were ended and none will be begun any more; None: they were not."""
