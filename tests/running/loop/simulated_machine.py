"""A machine in virtual time: devices, processes with their CUDA contexts, trials that take memory
late, and strangers. What it knows is the truth that admission is checked against.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from automl.devices.device_reading import DeviceProcess, DeviceSnapshot, HeldBytes
from automl.trial import (
    LOCAL_NODE,
    DeviceId,
    DeviceKind,
    DeviceShare,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    PackKind,
    Placement,
    ProcessId,
    TrialOutcome,
    host_device_of,
)
from tests.places import device_id

SWEEP = ProcessId(LOCAL_NODE, 1)
"""The process of the sweep, where trials run in its threads."""
CONTEXT_BYTES = 560 * 1024**2
"""What CUDA takes of a device in each process, as much as was ever measured."""
RELEASED_AFTER = 0.1
"""Seconds from the end of an execution until its reservation is returned."""


@dataclass(frozen=True)
class Plan:
    """How a trial will behave; times in virtual seconds from its start."""

    request_bytes: int | None
    peak_bytes: int
    """Memory it really takes on each of its devices, from `appears_after` on."""
    appears_after: float = 0.5
    """Its first backward pass."""
    seconds: float = 3.0
    ends: str = "finished"
    """finished, failed, failed alike, hopeless, dies (its process does, once), dies
    twice, or loses nodes (thrice the one that it is on)."""
    kind: PackKind | None = None
    hosted_after: float = 0.0
    """Seconds from admission until the trial's process runs and is known; then it starts."""
    reports_after: float = 0.5
    """Its first report; CUDA takes its context just before."""
    by_torch: bool = True
    """Its memory is torch's; else only NVML sees it."""
    n_devices: int = 1
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    cpu_takes: float = 1.0
    """Factor by which the trial takes longer on the CPU."""
    host_bytes: int = 0
    """Main memory that the trial's process takes beside a GPU, from its first report on."""

    def seconds_on(self, kind: DeviceKind) -> float:
        return self.seconds * (self.cpu_takes if kind is DeviceKind.CPU else 1)


@dataclass
class Stranger:
    """Another tenant of a device, who comes and goes."""

    device: str
    size_bytes: int
    from_seconds: float = 0.0
    until_seconds: float = math.inf


@dataclass(frozen=True)
class Fault:
    """A device fails: what trains there dies, and so does what is started there meanwhile."""

    device: str
    from_seconds: float
    until_seconds: float = math.inf
    lost: bool = True


@dataclass(eq=False)
class Process:
    """One of ours, on its devices."""

    address: ProcessId
    devices: tuple[DeviceId, ...]
    context_bytes: int
    has_context: bool = False
    host_bytes: int = 0
    """Main memory that it takes beside a GPU."""
    n_executions: int = 0


@dataclass(eq=False)
class Lane:
    """A trial that trains."""

    number: int
    plan: Plan
    began: float

    def outcome(self, now: float, n_starts: int, *, too_large: bool, dies: bool) -> TrialOutcome:
        """Its end, as it was planned; it has started so often."""
        number, ends = self.number, self.plan.ends
        if too_large:
            return OutOfMemoryOutcome(number, now, "CUDA out of memory")
        if dies:
            return InterruptedOutcome(number, now, "killed by SIGSEGV", by_worker_death=True)
        if ends == "loses nodes" and n_starts <= 3:
            return InterruptedOutcome(number, now, "node lost", node_lost=True)
        if ends in ("failed", "failed alike", "hopeless"):
            cause = f"ValueError: {number}" if ends == "failed" else "ValueError: no"
            return FailedOutcome(number, now, cause, hopeless=ends == "hopeless")
        return FinishedOutcome(number, now, 0.0)


@dataclass(eq=False)
class Hosted:
    """One admission as the machine has it: a trial or a pack, in a process."""

    key: int
    first: int
    """The trial that it began with."""
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
    """Devices of all nodes with their total bytes, and all that is on them."""

    totals: dict[DeviceId, int]
    strangers: Sequence[Stranger]
    own_processes: bool
    """Each execution in a process of its own, kept warm after it; else all in this one."""
    contexts: Iterator[int] = field(default_factory=lambda: itertools.repeat(CONTEXT_BYTES))
    """What CUDA takes in each new process."""
    shows_pids: bool = False
    """NVML tells what each process holds, as it does but in containers."""
    faults: Sequence[Fault] = ()
    max_processes: int | None = None
    """Most processes on a GPU, by its compute mode."""
    processes: list[Process] = field(default_factory=list)
    executions: dict[int, Hosted] = field(default_factory=dict)
    """Executions whose reservation has not come back."""
    _pids: Iterator[int] = field(default_factory=lambda: itertools.count(SWEEP.pid + 1))

    def process_on(self, devices: tuple[DeviceId, ...]) -> Process:
        """Return the process for one more execution: an idle one on the devices, or a new one."""
        for process in self.processes:
            if process.devices == devices and not (self.own_processes and process.n_executions):
                return process
        node = devices[0].node
        address = ProcessId(node, next(self._pids)) if self.own_processes else SWEEP
        self.processes.append(Process(address, devices, next(self.contexts)))
        return self.processes[-1]

    def on(self, device: DeviceId) -> list[Hosted]:
        """Executions on a device."""
        return [e for e in self.executions.values() if device in e.placement.devices]

    def fault_of(self, device: DeviceId, now: float) -> Fault | None:
        for fault in self.faults:
            if (
                device_id(fault.device) == device
                and fault.from_seconds <= now < fault.until_seconds
            ):
                return fault
        return None

    def contexts_bytes(self, device: DeviceId) -> int:
        if device.on_host:
            return 0
        ours = (p for p in self.processes if device in p.devices and p.has_context)
        return sum(p.context_bytes for p in ours)

    def strangers_bytes(self, device: DeviceId, now: float) -> int:
        wanted = sum(
            s.size_bytes
            for s in self.strangers
            if device_id(s.device) == device and s.from_seconds <= now < s.until_seconds
        )
        return min(wanted, self.totals[device])

    def can_get(self, execution: Hosted, lane: Lane, now: float) -> int:
        """What a trial can take of each device: what was reserved for it, or with devices to
        itself all."""
        if not execution.placement.exclusive and execution.n_lanes > 1:
            return lane.plan.request_bytes or 0
        return min(self._can_get_of(share, execution, now) for share in execution.placement.shares)

    def _can_get_of(self, share: DeviceShare, execution: Hosted, now: float) -> int:
        if not execution.placement.exclusive:
            return share.reservation_bytes
        device = share.device
        taken = self.strangers_bytes(device, now) + self.contexts_bytes(device)
        return (self.totals[device] - taken) // execution.n_lanes

    def own_bytes(
        self,
        device: DeviceId,
        now: float,
        process: Process | None = None,
        *,
        counted: bool = False,
    ) -> int:
        """What our trials hold of a device (those of one process; what torch counts of it)."""
        return sum(
            min(lane.plan.peak_bytes, self.can_get(execution, lane, now))
            for execution in self.on(device)
            for lane in execution.lanes.values()
            if process in (None, execution.process)
            and now - lane.began >= lane.plan.appears_after
            and (lane.plan.by_torch or not counted)
        )

    def used_bytes(self, device: DeviceId, now: float) -> int:
        """What the driver shows as used."""
        own = self.own_bytes(device, now) + self.contexts_bytes(device)
        return own + self.beside_bytes(device) + self.strangers_bytes(device, now)

    def beside_bytes(self, device: DeviceId) -> int:
        """Return what processes on GPUs take of a host's memory."""
        here = (p for p in self.processes if p.address.node == device.node)
        return sum(p.host_bytes for p in here) if device.on_host else 0

    def snapshots(self, now: float) -> tuple[DeviceSnapshot, ...]:
        return tuple(self._snapshot(device, now) for device in self.totals)

    def _snapshot(self, device: DeviceId, now: float) -> DeviceSnapshot:
        total, fault = self.totals[device], self.fault_of(device, now)
        return DeviceSnapshot(
            device,
            "sim",
            total,
            max(0, total - self.used_bytes(device, now)) if fault is None else 0,
            processes=tuple(self._tenants(device, now)) if self.shows_pids else (),
            max_processes=None if device.on_host else self.max_processes,
            fault=None if fault is None else "GPU is lost" if fault.lost else "Timeout",
            lost=fault is not None and fault.lost,
        )

    def _tenants(self, device: DeviceId, now: float) -> Iterator[DeviceProcess]:
        for process in self.processes:
            if device in process.devices and process.has_context:
                used = process.context_bytes + self.own_bytes(device, now, process)
                yield DeviceProcess(process.address.pid, used, used)

    def held_bytes(self, now: float) -> HeldBytes:
        """What our processes say that they hold: what torch counts."""
        held = {
            (device, process.address): self.own_bytes(device, now, process, counted=True)
            for process in self.processes
            for device in process.devices
        }
        beside = {
            (host_device_of(p.address.node), p.address): p.host_bytes
            for p in self.processes
            if p.host_bytes
        }
        return held | beside


# --- trials for it: any, and those of a kind that may go as a pack ---

GB = 1000**3
GPU = {"GPU-a": 24 * GB}


def n_gb(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda n: n * GB)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.one_of(st.none(), n_gb(0, 30)))
    return Plan(
        request_bytes=request,
        peak_bytes=draw(n_gb(0, 26)) if draw(st.booleans()) else (request or 0),
        appears_after=draw(st.floats(0, 4)),
        seconds=draw(st.floats(0, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "failed", "dies", "dies twice"])),
        kind=draw(st.sampled_from([None, PackKind("a", 2), PackKind("b", 4)])),
        hosted_after=draw(st.floats(0, 2)),
        reports_after=draw(st.floats(0, 4)),
    )


A, B = PackKind("a", 4), PackKind("b", 4)


def make_plan(
    kind: PackKind | None, seconds: float = 3.0, ends: str = "finished", n_gb: int | None = 1
) -> Plan:
    request = None if n_gb is None else n_gb * GB
    return Plan(request, request or 0, seconds=seconds, kind=kind, ends=ends)
