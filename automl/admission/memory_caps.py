"""How much of a GPU each running trial may take, so that promises are kept. Pure.

What is promised to nobody is free for everybody; beyond that, who outgrows a promise meets its own
out-of-memory error. A trial alone on its device may take all of it. Caps count what torch holds, as
requests do, and follow each reading: a trial that took of the rest has it counted as its own then.

What is promised to a trial once it was seen at work. Pure.

Its request was a bound on trials like it; after the first report of the study's metric it has
trained and validated, and holds about what it ever will. The rest of the promise goes to the next
trial at once. Who then outgrows what is left to it is ended by its own worker, not by a neighbour
(`caps.py`), and is believed the next time.

What our trials were promised and NVML does not show yet, for other sweeps to know. Pure.

    unseen(p) = max(0, Σ max(request, observed peak) + context − what a reading shows of p)

For others it is foreign memory, besides that which NVML shows them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from automl.admission.accounting.account import DeviceAccount, context_bytes
from automl.admission.accounting.ledger import DeviceLedgerPage, LedgerSnapshot, Reservation
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, Elsewhere
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
    """Of all that runs on these devices."""
    running = {held.key: held for device in on for held in ledger.on(device).reservations}
    return {key: _of(held, accounts) for key, held in running.items()}


def _of(held: Reservation, accounts: Mapping[DeviceId, DeviceAccount]) -> Mapping[DeviceId, int]:
    found = {}
    for device in held.placement.devices:
        here = accounts.get(device)
        if here is not None and not device.on_host and here.n_trials > 1:
            found[device] = _cap(held, here)
    return found


def _cap(reservation: Reservation, here: DeviceAccount) -> int:
    promised = reservation.counted_bytes(here.device.address)
    return max(1, promised + max(0, here.room_bytes))


SETTLED_MARGIN = 1.1
"""Of what a trial was seen to hold, to what it may hold later."""
_KEPT = (RequestSource.DECLARED, RequestSource.RAN_OUT)
"""The user's own word, and that of a trial that outgrew a promise before."""


def may_settle(request: ResourceRequest, placement: Placement, n_lanes: int) -> bool:
    """Whether this promise shrinks at all.

    Not on the host, where nothing holds a process to it, and not a pack's, whose lanes are filled
    again with trials that may be larger than those seen.
    """
    predicted = request.source not in _KEPT and not request.alone
    return predicted and n_lanes == 1 and not placement.on_host


def settled_bytes(peak: MemoryPeakMeasured, placement: Placement) -> Sequence[int] | None:
    """What it shrinks to on each of its devices. Where nothing was seen it stays (the memory is not
    torch's, or that of a process which the trial started); None: that is so everywhere."""
    if peak.peak_bytes <= 0:
        return None
    return [
        math.ceil(SETTLED_MARGIN * seen) if seen > 0 else share.reservation_bytes
        for seen, share in zip(peak.by_device, placement.shares, strict=True)
    ]


LASTS_SECONDS = 60.0
"""Nobody admits by a reading that old."""


def unseen_promises(reading: DeviceReading, ledger: LedgerSnapshot) -> tuple[MemoryPromise, ...]:
    """By GPU of this machine, and process."""
    return tuple(
        promise
        for device in sorted(ledger.on_node(LOCAL_NODE))
        if not device.on_host
        for promise in _of_page(device, ledger.on(device), reading, reading.find(device))
    )


def coming_promises(placement: Placement, key: int) -> tuple[MemoryPromise, ...]:
    """What will be promised when this is reserved under that key."""
    return tuple(
        MemoryPromise(s.device.uuid, _word(key), s.reservation_bytes + context_bytes(s.device))
        for s in placement.shares
        if not s.device.on_host and s.device.node == LOCAL_NODE
    )


class ShownPromises:
    """Keeps what was shown until everybody can have seen by NVML what became of it: another sweep
    may go by a reading that is older than ours."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], MemoryPromise] = {}
        self._kept: dict[tuple[str, str], MemoryPromise] = {}
        self._coming: Sequence[tuple[str, str]] = ()

    def withdraw(self) -> None:
        """What was coming at the last time does not come: nothing took its memory."""
        for where in self._coming:
            self._before.pop(where, None)
        self._coming = ()

    def of(
        self, promises: Sequence[MemoryPromise], coming: Sequence[MemoryPromise], now_seconds: float
    ) -> list[MemoryPromise]:
        """What to show: these, and of those that have become less the most that they were."""
        self._coming = [(p.uuid, p.key) for p in coming]
        now = {(p.uuid, p.key): p for p in (*promises, *coming)}
        for where, before in self._before.items():
            if where not in now or now[where].size_bytes < before.size_bytes:
                most = max(before.size_bytes, self._kept.get(where, before).size_bytes)
                self._kept[where] = replace(before, size_bytes=most, seen_seconds=now_seconds)
        self._kept = {
            where: kept
            for where, kept in self._kept.items()
            if now_seconds - kept.seen_seconds < LASTS_SECONDS
        }
        self._before = now
        return [*promises, *coming, *self._kept.values()]


def add_promises_elsewhere(reading: DeviceReading, now: Elsewhere) -> DeviceReading:
    """The reading with what others promise now. Of what they showed before it was taken and show no
    more, that stays which it may have missed."""
    before = reading.promised_elsewhere
    if not now or all(before.get(key, -1) >= size for key, size in now.items()):
        return reading
    most = {key: max(size, before.get(key, 0)) for key, size in now.items()}
    return replace(reading, promised_elsewhere={**before, **most})


def _of_page(
    device: DeviceId,
    page: DeviceLedgerPage,
    reading: DeviceReading,
    snapshot: DeviceSnapshot | None,
) -> Iterator[MemoryPromise]:
    shown = _shown(device, reading, snapshot)
    by_process: dict[ProcessId, list[Reservation]] = {}
    for reservation in page.reservations:
        by_process.setdefault(reservation.holder, []).append(reservation)
    for process, held in by_process.items():
        size = sum(reservation.counted_bytes(device) for reservation in held)
        size += _context_bytes(device, process, page, reading) - shown.get(process, 0)
        if size > 0:
            yield MemoryPromise(device.uuid, _word(min(r.key for r in held)), size)


def _context_bytes(
    device: DeviceId, process: ProcessId, page: DeviceLedgerPage, reading: DeviceReading
) -> int:
    """At the most where NVML may not show it yet, else as far as it is known."""
    context = page.contexts.get(process)
    if context is None or context.pending(reading.begun_seconds):
        return context_bytes(device)
    return page.context_bytes(process)


def _shown(
    device: DeviceId, reading: DeviceReading, snapshot: DeviceSnapshot | None
) -> Mapping[ProcessId, int]:
    """The least that the reading has of each process, by NVML or by its own word."""
    before, after = reading.held_before_on(device), reading.held_after_on(device)
    found = {process: min(size, after.get(process, 0)) for process, size in before.items()}
    by_owner: dict[ProcessId, int] = defaultdict(int)
    for p in () if snapshot is None else snapshot.processes:
        by_owner[ProcessId(device.node, p.owner)] += p.least_bytes or 0
    for process, size in by_owner.items():
        found[process] = max(found.get(process, 0), size)
    return found


def _word(key: int) -> str:
    return f"t{key}"
