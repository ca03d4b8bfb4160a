"""A machine in virtual time: devices, processes with their CUDA contexts, trials that take memory
late, and strangers. What it knows is the truth that admission is checked against.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from automl.devices.device import DeviceSnapshot
from automl.running.messages import Kind
from automl.trial import Placement

PID = 1
"""The process of the sweep, where trials run in its threads."""
CONTEXT_BYTES = 560 * 1024**2
"""What CUDA takes of a device in each process, as much as was ever measured."""


@dataclass(frozen=True)
class Plan:
    """How a trial will behave; times in virtual seconds from its start."""

    request_bytes: int | None
    peak_bytes: int
    """Memory it really takes, from `appears_after` on."""
    appears_after: float = 0.5
    """Its first backward pass."""
    seconds: float = 3.0
    ends: str = "finished"
    """finished, failed, failed alike, hopeless, dies (its process does, once) or dies twice."""
    kind: Kind | None = None
    hosted_after: float = 0.0
    """From its admission until its process runs and is known; then it starts."""
    reports_after: float = 0.5
    """Its first report; CUDA takes its context just before."""


@dataclass
class Stranger:
    """Another tenant of a device, who comes and goes."""

    uuid: str
    size_bytes: int
    from_seconds: float = 0.0
    until_seconds: float = math.inf


@dataclass(eq=False)
class Process:
    """One of ours, on one device."""

    pid: int
    uuid: str
    has_context: bool = False
    n_executions: int = 0


@dataclass(eq=False)
class Lane:
    """A trial that trains."""

    number: int
    plan: Plan
    began: float


@dataclass(eq=False)
class Hosted:
    """One admission as the machine has it: a trial or a pack, in a process."""

    key: int
    placement: Placement
    n_lanes: int
    process: Process
    fed: deque[int] = field(default_factory=deque)
    """Trials that no lane has taken yet."""
    lanes: dict[int, Lane] = field(default_factory=dict)
    runs: bool = False
    over: bool = False


@dataclass
class Machine:
    """Devices by uuid with their total bytes, and all that is on them."""

    totals: dict[str, int]
    strangers: Sequence[Stranger]
    own_processes: bool
    """Each execution in a process of its own, kept warm after it; else all in this one."""
    processes: list[Process] = field(default_factory=list)
    executions: dict[int, Hosted] = field(default_factory=dict)
    """Those whose reservation has not come back."""
    _pids: Iterator[int] = field(default_factory=lambda: itertools.count(PID + 1))

    def process_on(self, uuid: str) -> Process:
        """For one more execution: an idle one of the device, or a new one."""
        for process in self.processes:
            if process.uuid == uuid and not (self.own_processes and process.n_executions):
                return process
        self.processes.append(Process(next(self._pids) if self.own_processes else PID, uuid))
        return self.processes[-1]

    def on(self, uuid: str) -> list[Hosted]:
        """Executions on a device."""
        return [e for e in self.executions.values() if e.placement.device_uuid == uuid]

    def contexts_bytes(self, uuid: str) -> int:
        return CONTEXT_BYTES * sum(p.has_context for p in self.processes if p.uuid == uuid)

    def strangers_bytes(self, uuid: str, now: float) -> int:
        return sum(
            s.size_bytes
            for s in self.strangers
            if s.uuid == uuid and s.from_seconds <= now < s.until_seconds
        )

    def can_get(self, execution: Hosted, lane: Lane, now: float) -> int:
        """What a trial can take: what was reserved for it, or with a device to itself all."""
        uuid = execution.placement.device_uuid
        if execution.placement.exclusive:
            taken = self.strangers_bytes(uuid, now) + self.contexts_bytes(uuid)
            return (self.totals[uuid] - taken) // execution.n_lanes
        if execution.n_lanes > 1:
            return lane.plan.request_bytes or 0
        return execution.placement.reservation_bytes

    def own_bytes(self, uuid: str, now: float, pid: int | None = None) -> int:
        """What our trials hold of a device (those of one process)."""
        return sum(
            min(lane.plan.peak_bytes, self.can_get(execution, lane, now))
            for execution in self.on(uuid)
            for lane in execution.lanes.values()
            if pid in (None, execution.process.pid) and now - lane.began >= lane.plan.appears_after
        )

    def used_bytes(self, uuid: str, now: float) -> int:
        """What the driver shows as used."""
        own = self.own_bytes(uuid, now) + self.contexts_bytes(uuid)
        return own + self.strangers_bytes(uuid, now)

    def snapshots(self, now: float) -> tuple[DeviceSnapshot, ...]:
        return tuple(
            DeviceSnapshot(uuid, "sim", total, max(0, total - self.used_bytes(uuid, now)))
            for uuid, total in self.totals.items()
        )

    def held_bytes(self, now: float) -> dict[tuple[str, int], int]:
        """What our processes say that they hold."""
        return {(p.uuid, p.pid): self.own_bytes(p.uuid, now, p.pid) for p in self.processes}
