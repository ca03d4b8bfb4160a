"""Computes where the memory of a device is, by one reading and the ledger. Pure.

    used(p)  = max(what torch holds in our process p, NVML's bytes of its pid)
    hold(p)  = max(used(p), Σ max(request, observed peak) over its admitted trials + its context)
    foreign  = max(0, total − free − Σ used(p)) + what other sweeps promise and NVML does not show
    room     = total − foreign − Σ hold(p) − contexts not yet visible − headroom

What our processes hold is read just before and just after NVML is asked for the device, and may
change meanwhile: `foreign` is computed with the smaller value and `hold` with the larger, so that
both err on the safe side. Where NVML knows no pids (in a container) a context counts as foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from automl.admission.accounting.ledger import DeviceLedgerPage
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import DeviceId, ProcessId

CONTEXT_BOUND_BYTES = 1024**3
"""The most that a new process takes of a GPU before its first tensor (518 to 650 MiB on an
H200, driver 580: experiments/006-packing/gpu.md). It counts until the driver shows the real figure.
"""


DISTURBING_SHARE = 0.05
"""Share of a device that others must hold above their least to disturb a trial. A trial that then
runs out of memory alone on the device may owe it to them."""


@dataclass(frozen=True)
class DeviceAccount:
    """Where the memory of one device is, in bytes."""

    device: DeviceSnapshot
    page: DeviceLedgerPage
    foreign_bytes: int
    hold_bytes: int
    idle_bytes: int
    """The part of `hold_bytes` that our idle processes hold."""
    pending_bytes: int
    headroom_bytes: int
    exclusive: bool
    probing: bool
    """Whether a trial of unknown size has joined others there and was not seen at work yet."""
    own_processes: frozenset[ProcessId]
    least_foreign_bytes: int
    """The least that others were seen to hold in this sweep."""
    n_processes: int
    """Number of processes that compute there, ours and others; 0 where any number may."""
    may_be_ours_bytes: int
    """The most that our contexts, whose processes NVML does not know, add to `foreign_bytes`."""
    kept_bytes: int = 0
    """Memory of a machine that is kept for its GPUs (`host_share.py`); 0 where nobody asked for
    it."""

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
    def rank(self) -> int:
        """Rank of the device; of the devices that have room the lowest is taken.

        Fewest trials come first, then the least busy, then the fullest: three figures in one, each
        above the bits of the next. Load counts in quarters, as utilisation tells that some kernel
        ran, not how much room there is. What is kept of a machine is left out.
        """
        quarters, room_bytes = int(4 * _load(self.device)), self.room_bytes + self.kept_bytes
        return (min(self.n_trials, 2047) << 52) + (quarters << 49) + room_bytes


@dataclass(frozen=True)
class _ProcessUsage:
    """What one of our processes holds of a device, at least and at most, while it was read."""

    low_bytes: int
    high_bytes: int


def make_account(
    device: DeviceSnapshot, reading: DeviceReading, page: DeviceLedgerPage, headroom_bytes: int
) -> DeviceAccount:
    """Return the account of one device; the head of this module has the formula."""
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
    """Return how many processes compute there; our processes that are not known yet count, too."""
    if device.max_processes is None:
        return 0
    others = {ProcessId(device.address.node, p.pid) for p in device.processes if p.computes}
    return len(ours | page.contexts.keys() | others)


def _load(device: DeviceSnapshot) -> float:
    """Return the utilisation, rounded to quarters."""
    return round((device.utilisation or 0.0) * 4) / 4


def is_same_but_shown(device: DeviceSnapshot, other: DeviceSnapshot) -> bool:
    """Return whether two snapshots of one device agree in everything but what is only displayed."""
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


def visible_contexts(
    reading: DeviceReading, on: Iterable[DeviceId]
) -> Iterator[tuple[DeviceId, ProcessId, int]]:
    """Yield what NVML shows of each of our processes on these devices beyond torch's memory there.

    This is its CUDA context, and memory that torch does not count, so it is an upper bound.
    Processes that NVML does not know are left out.
    """
    for device in filter(None, map(reading.find, on)):
        here, pids = device.address, _by_process(device)
        held, before = reading.held_after_on(here), reading.held_before_on(here)
        for process in held.keys() & pids.keys() & before.keys():
            least = min(held[process], before[process])  # memory freed meanwhile is no context
            size = max(0, pids[process].low_bytes - least)
            yield here, process, min(size, CONTEXT_BOUND_BYTES)


def context_bytes(device: DeviceId) -> int:
    """Return the most that a new process takes of the device besides its trials."""
    return 0 if device.on_host else CONTEXT_BOUND_BYTES


def _used(
    device: DeviceSnapshot, reading: DeviceReading, trains: set[ProcessId]
) -> dict[ProcessId, _ProcessUsage]:
    """Return the usage of each of our processes that trains or reports what it holds."""
    before = reading.held_before_on(device.address)
    after = reading.held_after_on(device.address)
    pids = _by_process(device)
    nothing = _ProcessUsage(0, 0)
    return {
        p: _ProcessUsage(
            max(min(before.get(p, 0), after.get(p, 0)), pids.get(p, nothing).low_bytes),
            max(before.get(p, 0), after.get(p, 0), pids.get(p, nothing).high_bytes),
        )
        for p in {*before, *after, *trains}
    }


def _by_process(device: DeviceSnapshot) -> Mapping[ProcessId, _ProcessUsage]:
    """Return NVML's figures for each process, with the processes that it started, where NVML has
    any."""
    found: dict[ProcessId, _ProcessUsage] = {}
    for p in device.processes:
        if p.used_bytes is not None:
            owner = ProcessId(device.address.node, p.owner)
            before = found.get(owner, _ProcessUsage(0, 0))
            found[owner] = _ProcessUsage(
                before.low_bytes + (p.least_bytes or 0), before.high_bytes + p.used_bytes
            )
    return found
