"""Defines the messages between the sweep and the agent of a node: plain, picklable values.

Messages are numbered in both directions, so that none is lost or handled twice when a call has to
be repeated. Sending and receiving is done in `node.py` and `agent.py`.
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
    """Holds what an agent needs to know before the first trial, beside its workers' entry."""

    limits: WorkerLimits
    study: str
    """Path of the study's folder where the sweep runs."""
    marker: str
    """Name of a file in the study's folder; a node that reads it there shares the folder."""
    marker_content: str
    """Content of the marker file, which is new for each sweep."""
    stored: CheckpointStore | None = None
    """The store for checkpoints that do not lie in a folder that all machines see."""
    stores_shared: bool = False
    """Whether checkpoints in a shared study folder are stored, too, since other sweeps may not see
    that folder."""


# --- the sweep to an agent ----------------------------------------------------------------------


@dataclass(frozen=True)
class BeginExecution:
    """Tells an agent to carry out trials."""

    key: int
    """Key of the execution."""
    specs: Sequence[TrialSpec]
    n_lanes: int
    placement: Placement
    files: Files
    """The trials' stored files; empty where the study's folder is shared."""


@dataclass(frozen=True)
class CallReplied:
    """Carries the reply to an agent's call, or the error that made the call fail."""

    call: int
    value: object = None
    error: str | None = None


@dataclass(frozen=True)
class NextTrialGiven:
    """Replies to `NextTrialWanted` with a trial and its stored files, or with none."""

    spec: TrialSpec | None
    files: Files = field(default_factory=dict)


@dataclass(frozen=True)
class EventsJudged:
    """Carries verdicts on events that were `EventsNoted`, where a trial is not to go on."""

    key: int
    verdicts: Mapping[int, Verdict]


@dataclass(frozen=True)
class StopTrials:
    """Calls `Executor.stop_trials` on the node."""


@dataclass(frozen=True)
class KillWorkers:
    """Calls `Executor.kill` on the node."""

    cause: str


@dataclass(frozen=True)
class EndTrials:
    """Calls `Executor.end_trials` on the node."""

    trials: frozenset[int]
    cause: str


@dataclass(frozen=True)
class CapMemory:
    """Calls `Executor.cap_memory` on the node."""

    caps: Mapping[int, Mapping[DeviceId, int]]


@dataclass(frozen=True)
class EndIdle:
    """Calls `Executor.end_idle` on the node."""

    devices: frozenset[DeviceId]


ToAgent: TypeAlias = (
    "BeginExecution | CallReplied | EventsJudged | StopTrials | KillWorkers | EndTrials | "
    "CapMemory | EndIdle"
)


@dataclass(frozen=True)
class CommandBatch:
    """Carries commands to an agent in their order."""

    first: int = 0
    """Number of the first command."""
    commands: Sequence[ToAgent] = ()


# --- an agent to the sweep ----------------------------------------------------------------------


@dataclass(frozen=True)
class EventsAwaitingVerdict:
    """Carries events of an execution and the files they mention; the agent waits for verdicts."""

    key: int
    call: int
    events: Sequence[TrialEvent]
    files: Files


@dataclass(frozen=True)
class TrialTaken:
    """Reports that the execution now carries out the next of the trials that it began with."""

    key: int
    number: int


@dataclass(frozen=True)
class EventsNoted:
    """Carries events of an execution on which no trial waits for a verdict, and their files."""

    key: int
    events: Sequence[TrialEvent]
    files: Files


@dataclass(frozen=True)
class NextTrialWanted:
    """Asks for another trial of the same kind, since a lane is free; waits for `NextTrialGiven`."""

    key: int
    call: int


@dataclass(frozen=True)
class TrialQuestion:
    """Carries a trial's question; the trial waits for the reply."""

    key: int
    call: int
    question: Question


@dataclass(frozen=True)
class ExecutionOver:
    """Reports that the execution is over, and the error that it raised, if any."""

    key: int
    error: Exception | None


@dataclass(frozen=True)
class AgentWarning:
    """Carries a warning of the agent's process, which the sweep shows to people."""

    text: str


FromExecution: TypeAlias = (
    "EventsAwaitingVerdict | TrialTaken | EventsNoted | NextTrialWanted | TrialQuestion | "
    "ExecutionOver"
)
ToSweep: TypeAlias = "FromExecution | AgentWarning"
ANSWERED_MESSAGES = (EventsAwaitingVerdict, NextTrialWanted, TrialQuestion, ExecutionOver)
"""Messages that the sweep soon answers by a command: a reply, or the start of an execution."""


@dataclass(frozen=True)
class PollAnswer:
    """Carries an agent's messages and the state of its node, in answer to a poll."""

    first: int
    """Number of the first message."""
    messages: Sequence[ToSweep]
    arrived_seconds: float
    """Arrival of the poll, by the node's `time.monotonic()`."""
    lease_clock_seconds: float
    """The node's `lease_seconds()` at the answer. The sweep returns it with the next poll, and the
    lease of the node's workers then counts from it."""
    reading: object
    """The latest reading of the node's devices; None if it was sent already."""
    idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]
    n_steps: Mapping[int, int]
    ended: str | None = None
    """Cause for which all workers were ended for good; None while the agent works."""
