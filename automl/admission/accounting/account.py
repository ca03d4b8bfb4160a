"""Where the memory of a device is, by one reading and the ledger. Pure.

    used(p)  = max(what torch holds in our process p, NVML's bytes of its pid)
    hold(p)  = max(used(p), Σ max(request, observed peak) over its admitted trials + its context)
    foreign  = max(0, total − free − Σ used(p)) + what other sweeps promise and NVML does not show
    room     = total − foreign − Σ hold(p) − contexts not yet visible − headroom

Both sides of `used` are read just before and just after NVML is asked for the device, while they
may change: `foreign` is computed with the smaller and `hold` with the larger, so that both err on
the safe side. Where NVML knows no pids (in a container) a context counts as foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from automl.admission.accounting.ledger import DeviceLedgerPage
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import DeviceId, ProcessId

CONTEXT_BOUND_BYTES = 1024**3
"""The most that a new process takes of a GPU before its first tensor (400–560 MiB were measured on
current drivers and torch). Counts until the driver shows the real figure."""


DISTURBING_SHARE = 0.05
"""Of a device: what others hold more than at their least, from which on a trial that runs out of
memory there alone may owe it to them."""


@dataclass(frozen=True)
class DeviceAccount:
    """One device. Sizes in bytes."""

    device: DeviceSnapshot
    page: DeviceLedgerPage
    foreign_bytes: int
    hold_bytes: int
    idle_bytes: int
    """The part of `hold_bytes` that processes of ours hold in which nothing runs."""
    pending_bytes: int
    headroom_bytes: int
    exclusive: bool
    probing: bool
    """A trial of unknown size is there that has joined others, and was not seen at work yet."""
    own_processes: frozenset[ProcessId]
    least_foreign_bytes: int
    """The least that others were seen to hold in this sweep."""
    n_processes: int
    """That compute there, ours and others; 0 where any number may."""
    may_be_ours_bytes: int
    """Of what counts as foreign: contexts of ours whose processes NVML does not know, at most."""
    kept_bytes: int = 0
    """Of a machine's memory: for its GPUs (`host_share.py`); 0 but where it is asked for."""

    @property
    def is_undisturbed(self) -> bool:
        """Whether others hold about as little as they ever did."""
        more_bytes = self.foreign_bytes - self.may_be_ours_bytes - self.least_foreign_bytes
        return more_bytes <= DISTURBING_SHARE * self.device.total_bytes

    @property
    def n_trials(self) -> int:
        return len(self.page.reservations)

    @cached_property
    def room_bytes(self) -> int:
        taken = self.foreign_bytes + self.hold_bytes + self.pending_bytes + self.kept_bytes
        return self.device.total_bytes - taken - self.headroom_bytes

    @cached_property
    def empty_room_bytes(self) -> int:
        """Room on the device if nothing else were there."""
        return self.device.total_bytes - self.headroom_bytes - context_bytes(self.device.address)

    @cached_property
    def order(self) -> tuple[int, float, int, DeviceId]:
        """Of those that have room the first is taken: fewest trials, least busy (in quarters, as
        utilisation says that some kernel ran, not how much room there is), fullest; what is kept
        of a machine is not looked at, by which they are not filed either (`device_index.py`)."""
        room_bytes = self.room_bytes + self.kept_bytes
        return self.n_trials, _load(self.device), room_bytes, self.device.address


@dataclass(frozen=True)
class _ProcessUsage:
    """What one of our processes holds of a device, at least and at most, while it was read."""

    low_bytes: int
    high_bytes: int


def make_account(
    device: DeviceSnapshot, reading: DeviceReading, page: DeviceLedgerPage, headroom_bytes: int
) -> DeviceAccount:
    """Add up one device. See the head of this module for the formula."""
    here = device.address
    reservations = page.reservations
    promised: dict[ProcessId | None, int] = {}
    for r in reservations:
        promised[r.process] = promised.get(r.process, 0) + r.counted_bytes(here)
    used = _used(device, reading, {p for p in promised if p is not None})
    hold, idle = promised.get(None, 0), 0
    for process, held in used.items():
        if process in promised:
            hold += max(held.high_bytes, promised[process] + page.context_bytes(process))
        else:
            idle += held.high_bytes
    pending = context_bytes(here) * page.n_pending_contexts(reading.begun_seconds)
    taken = device.total_bytes - device.free_bytes
    foreign = max(0, taken - sum(held.low_bytes for held in used.values()))
    foreign += reading.promised_elsewhere_on(here)
    least = page.least_foreign_bytes
    return DeviceAccount(
        device=device,
        page=page,
        foreign_bytes=foreign,
        least_foreign_bytes=foreign if least is None else min(foreign, least),
        may_be_ours_bytes=context_bytes(here) * page.n_unmeasured_contexts,
        hold_bytes=hold + idle,
        idle_bytes=idle,
        pending_bytes=pending,
        headroom_bytes=headroom_bytes,
        n_processes=_n_processes(device, page, {*used, *(r.holder for r in reservations)}),
        exclusive=any(r.placement.exclusive for r in reservations),
        probing=any(r.placement.probing for r in reservations),
        own_processes=frozenset(used),
    )


def _n_processes(device: DeviceSnapshot, page: DeviceLedgerPage, ours: set[ProcessId]) -> int:
    """Of those of ours that are not known yet each counts, too."""
    if device.max_processes is None:
        return 0
    others = {ProcessId(device.address.node, p.pid) for p in device.processes if p.computes}
    return len(ours | page.contexts.keys() | others)


def _load(device: DeviceSnapshot) -> float:
    """In quarters."""
    return round((device.utilisation or 0.0) * 4) / 4


def is_alike(device: DeviceSnapshot, other: DeviceSnapshot) -> bool:
    """Whether two snapshots of one device tell of the same, but for what is only shown."""
    return device is other or (
        device.free_bytes == other.free_bytes
        and device.total_bytes == other.total_bytes
        and device.fault == other.fault
        and device.lost == other.lost
        and device.max_processes == other.max_processes
        and device.closed == other.closed
        and _load(device) == _load(other)
        and device.processes == other.processes
    )


def contexts_seen(
    reading: DeviceReading, on: Iterable[DeviceId]
) -> Iterator[tuple[DeviceId, ProcessId, int]]:
    """What NVML shows of each of our processes on these devices beyond what torch holds there: its
    CUDA context (and memory that torch does not count, hence at most so much). Nothing of whom NVML
    does not know."""
    for device in filter(None, map(reading.find, on)):
        here, pids = device.address, _by_process(device)
        held, before = reading.held_after_on(here), reading.held_before_on(here)
        for process in held.keys() & pids.keys() & before.keys():
            least = min(held[process], before[process])  # freed meanwhile is not the context
            size = max(0, pids[process].low_bytes - least)
            yield here, process, min(size, CONTEXT_BOUND_BYTES)


def context_bytes(device: DeviceId) -> int:
    """What a new process of ours will take of the device besides its trials, at most."""
    return 0 if device.on_host else CONTEXT_BOUND_BYTES


def _used(
    device: DeviceSnapshot, reading: DeviceReading, trains: set[ProcessId]
) -> dict[ProcessId, _ProcessUsage]:
    """By process of ours: those that train, and those that say what they hold."""
    before = reading.held_before_on(device.address)
    after = reading.held_after_on(device.address)
    pids = _by_process(device)
    none = _ProcessUsage(0, 0)
    return {
        p: _ProcessUsage(
            max(min(before.get(p, 0), after.get(p, 0)), pids.get(p, none).low_bytes),
            max(before.get(p, 0), after.get(p, 0), pids.get(p, none).high_bytes),
        )
        for p in {*before, *after, *trains}
    }


def _by_process(device: DeviceSnapshot) -> Mapping[ProcessId, _ProcessUsage]:
    """NVML's word on each process and those that it started, where it has one."""
    found: dict[ProcessId, _ProcessUsage] = {}
    for p in device.processes:
        if p.used_bytes is not None:
            owner = ProcessId(device.address.node, p.owner)
            before = found.get(owner, _ProcessUsage(0, 0))
            found[owner] = _ProcessUsage(
                before.low_bytes + (p.least_bytes or 0), before.high_bytes + p.used_bytes
            )
    return found
