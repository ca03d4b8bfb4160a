"""Computes how much memory each running trial may take, and what is promised to it. Pure.

**Caps.** Memory of a GPU that is promised to nobody is free for every trial there; a trial that
needs more meets its own out-of-memory error, and no neighbour does. A trial alone on its device may
take all of it. Caps count what torch holds, as requests do, and follow each reading: what a trial
took of the free memory is then counted as its own.

**Settling.** A request is a bound on trials like this one. After the first report of the study's
metric the trial has trained and validated, and holds about what it ever will. The rest of its
promise goes to the next trial at once. A trial that then outgrows its promise is ended by its own
worker, not by a neighbour, and its next request is believed.

**Promises to other sweeps.** What our process p was promised and NVML does not show yet is

    unseen(p) = max(0, Σ max(request, observed peak) + context − what a reading shows of p)

which other sweeps count as foreign memory, in addition to what NVML shows them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from automl.admission.accounting.account import DeviceAccount, context_bytes
from automl.admission.accounting.ledger import DeviceLedgerPage, LedgerSnapshot, Reservation
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, OtherPromises
from automl.devices.memory_promises import MemoryPromise
from automl.trial import (
    LOCAL_NODE,
    DeviceId,
    MemoryPeakMeasured,
    Placement,
    ProcessId,
    RequestSource,
    ResourceRequest,
)

Caps: TypeAlias = Mapping[int, Mapping[DeviceId, int]]
"""Bytes of each GPU, by the key of the reservation; a device that is not named is not capped."""


def memory_caps(
    accounts: Mapping[DeviceId, DeviceAccount], ledger: LedgerSnapshot, on: Iterable[DeviceId]
) -> Caps:
    """Return the caps of all trials that run on these devices."""
    running = {r.key: r for device in on for r in ledger.on(device).reservations}
    return {key: _caps_of(reservation, accounts) for key, reservation in running.items()}


def _caps_of(
    reservation: Reservation, accounts: Mapping[DeviceId, DeviceAccount]
) -> Mapping[DeviceId, int]:
    caps = {}
    for device in reservation.placement.devices:
        account = accounts.get(device)
        if account is not None and not device.on_host and account.n_trials > 1:
            caps[device] = _cap(reservation, account)
    return caps


def _cap(reservation: Reservation, account: DeviceAccount) -> int:
    promised = reservation.counted_bytes(account.device.address)
    return max(1, promised + max(0, account.room_bytes))


SETTLED_MARGIN = 1.1
"""Margin from what a trial was seen to hold to what it may hold later."""
_KEPT = (RequestSource.DECLARED, RequestSource.RAN_OUT)
"""Sources of promises that never shrink: the user's own word, and a trial that outgrew a promise
before."""


def may_settle(request: ResourceRequest, placement: Placement, n_lanes: int) -> bool:
    """Return whether this promise shrinks at all.

    A promise on the host does not, as nothing holds a process to it. A pack's does not, as its
    lanes are filled again with trials that may be larger than those seen.
    """
    predicted = request.source not in _KEPT and not request.alone
    return predicted and n_lanes == 1 and not placement.on_host


def settled_bytes(peak: MemoryPeakMeasured, placement: Placement) -> Sequence[int] | None:
    """Return the size to which a promise shrinks on each of its devices.

    Where nothing was seen it stays: the memory is not torch's, or belongs to a process which the
    trial started. None: nothing was seen on any device.
    """
    if peak.peak_bytes <= 0:
        return None
    return [
        math.ceil(SETTLED_MARGIN * seen) if seen > 0 else share.reservation_bytes
        for seen, share in zip(peak.by_device, placement.shares, strict=True)
    ]


LASTS_SECONDS = 60.0
"""Age of a reading by which no sweep admits any more."""


def unseen_promises(reading: DeviceReading, ledger: LedgerSnapshot) -> tuple[MemoryPromise, ...]:
    """Return the promises that the reading does not show, by GPU of this machine and process."""
    return tuple(
        promise
        for device in sorted(ledger.on_node(LOCAL_NODE))
        if not device.on_host
        for promise in _promises_of_page(device, ledger.on(device), reading, reading.find(device))
    )


def coming_promises(placement: Placement, key: int) -> tuple[MemoryPromise, ...]:
    """Return what will be promised when this placement is reserved under that key."""
    return tuple(
        MemoryPromise(
            s.device.uuid, _promise_key(key), s.reservation_bytes + context_bytes(s.device)
        )
        for s in placement.shares
        if not s.device.on_host and s.device.node == LOCAL_NODE
    )


class PromiseRetention:
    """Decides which promises of memory other sweeps are still shown.

    A promise stays until every sweep can have seen by NVML what became of it: another sweep may use
    an older reading than ours.
    """

    def __init__(self) -> None:
        self._last_shown: dict[tuple[str, str], MemoryPromise] = {}
        self._outlasting: dict[tuple[str, str], MemoryPromise] = {}

    def promises_to_show(
        self, promises: Sequence[MemoryPromise], coming: Sequence[MemoryPromise], now_seconds: float
    ) -> list[MemoryPromise]:
        """Return what to show: these promises, and for each that has shrunk the most that it
        was."""
        current = {(p.uuid, p.key): p for p in (*promises, *coming)}
        for where, previous in self._last_shown.items():
            if where not in current or current[where].size_bytes < previous.size_bytes:
                most = max(previous.size_bytes, self._outlasting.get(where, previous).size_bytes)
                self._outlasting[where] = replace(
                    previous, size_bytes=most, seen_seconds=now_seconds
                )
        self._outlasting = {
            where: kept
            for where, kept in self._outlasting.items()
            if now_seconds - kept.seen_seconds < LASTS_SECONDS
        }
        self._last_shown = current
        return [*promises, *coming, *self._outlasting.values()]


def add_promises_elsewhere(reading: DeviceReading, current: OtherPromises) -> DeviceReading:
    """Return the reading with what others promise now.

    A promise that they showed before the reading was taken, and show no more, stays, as the reading
    may have missed its memory.
    """
    before = reading.promised_elsewhere
    if not current or all(before.get(key, -1) >= size for key, size in current.items()):
        return reading
    most = {key: max(size, before.get(key, 0)) for key, size in current.items()}
    return replace(reading, promised_elsewhere={**before, **most})


def _promises_of_page(
    device: DeviceId,
    page: DeviceLedgerPage,
    reading: DeviceReading,
    snapshot: DeviceSnapshot | None,
) -> Iterator[MemoryPromise]:
    shown = _shown(device, reading, snapshot)
    by_process: dict[ProcessId, list[Reservation]] = {}
    for reservation in page.reservations:
        by_process.setdefault(reservation.holder, []).append(reservation)
    for process, reservations in by_process.items():
        size = sum(reservation.counted_bytes(device) for reservation in reservations)
        size += _context_bytes(device, process, page, reading) - shown.get(process, 0)
        if size > 0:
            yield MemoryPromise(device.uuid, _promise_key(min(r.key for r in reservations)), size)


def _context_bytes(
    device: DeviceId, process: ProcessId, page: DeviceLedgerPage, reading: DeviceReading
) -> int:
    """Return the size of the context: the bound where NVML may not show it yet, else what is
    known."""
    context = page.contexts.get(process)
    if context is None or context.pending(reading.begun_seconds):
        return context_bytes(device)
    return page.context_bytes(process)


def _shown(
    device: DeviceId, reading: DeviceReading, snapshot: DeviceSnapshot | None
) -> Mapping[ProcessId, int]:
    """Return the least that the reading has of each process, by NVML or by the process's own
    report."""
    before, after = reading.held_before_on(device), reading.held_after_on(device)
    found = {process: min(size, after.get(process, 0)) for process, size in before.items()}
    by_owner: dict[ProcessId, int] = defaultdict(int)
    for p in () if snapshot is None else snapshot.processes:
        by_owner[ProcessId(device.node, p.owner)] += p.least_bytes or 0
    for process, size in by_owner.items():
        found[process] = max(found.get(process, 0), size)
    return found


def _promise_key(key: int) -> str:
    return f"t{key}"
