"""What our trials were promised and NVML does not show yet, for other sweeps to know. Pure.

    unseen(p) = max(0, Σ max(request, observed peak) + context − what a reading shows of p)

For others it is foreign memory, besides that which NVML shows them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from automl.admission.account import context_bytes
from automl.admission.ledger import LedgerSnapshot, Page, Reservation
from automl.devices.device import DeviceSnapshot, Elsewhere, Reading
from automl.devices.promises import Promise
from automl.trial import LOCAL_NODE, DeviceId, Placement, ProcessId

LASTS_SECONDS = 60.0
"""Nobody admits by a reading that old."""


def unseen(reading: Reading, ledger: LedgerSnapshot) -> tuple[Promise, ...]:
    """By GPU of this machine, and process."""
    return tuple(
        promise
        for device in sorted(ledger.on_node(LOCAL_NODE))
        if not device.on_host
        for promise in _of_page(device, ledger.on(device), reading, reading.find(device))
    )


def about_to_be(placement: Placement, key: int) -> tuple[Promise, ...]:
    """What will be promised when this is reserved under that key."""
    return tuple(
        Promise(s.device.uuid, _word(key), s.reservation_bytes + context_bytes(s.device))
        for s in placement.shares
        if not s.device.on_host and s.device.node == LOCAL_NODE
    )


class Lasting:
    """Keeps what was shown until everybody can have seen by NVML what became of it: another sweep
    may go by a reading that is older than ours."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], Promise] = {}
        self._kept: dict[tuple[str, str], Promise] = {}
        self._coming: Sequence[tuple[str, str]] = ()

    def withdraw(self) -> None:
        """What was coming at the last time does not come: nothing took its memory."""
        for where in self._coming:
            self._before.pop(where, None)
        self._coming = ()

    def of(
        self, promises: Sequence[Promise], coming: Sequence[Promise], now_seconds: float
    ) -> list[Promise]:
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


def with_elsewhere(reading: Reading, now: Elsewhere) -> Reading:
    """The reading with what others promise now. Of what they showed before it was taken and show no
    more, that stays which it may have missed."""
    before = reading.promised_elsewhere
    if not now or all(before.get(key, -1) >= size for key, size in now.items()):
        return reading
    most = {key: max(size, before.get(key, 0)) for key, size in now.items()}
    return replace(reading, promised_elsewhere={**before, **most})


def _of_page(
    device: DeviceId, page: Page, reading: Reading, snapshot: DeviceSnapshot | None
) -> Iterator[Promise]:
    shown = _shown(device, reading, snapshot)
    by_process: dict[ProcessId, list[Reservation]] = {}
    for reservation in page.reservations:
        by_process.setdefault(reservation.holder, []).append(reservation)
    for process, held in by_process.items():
        size = sum(reservation.counted_bytes(device) for reservation in held)
        size += _context_bytes(device, process, page, reading) - shown.get(process, 0)
        if size > 0:
            yield Promise(device.uuid, _word(min(r.key for r in held)), size)


def _context_bytes(device: DeviceId, process: ProcessId, page: Page, reading: Reading) -> int:
    """At the most where NVML may not show it yet, else as far as it is known."""
    context = page.contexts.get(process)
    if context is None or context.pending(reading.begun_seconds):
        return context_bytes(device)
    return page.context_bytes(process)


def _shown(
    device: DeviceId, reading: Reading, snapshot: DeviceSnapshot | None
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
