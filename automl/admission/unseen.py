"""What our trials were promised and NVML does not show yet, for other sweeps to know. Pure.

    unseen(p) = max(0, Σ max(request, observed peak) + context − what a reading shows of p)

For others it is foreign memory, besides that which NVML shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from automl.admission.account import context_bytes
from automl.admission.ledger import LedgerSnapshot, Page, Reservation
from automl.devices.device import DeviceSnapshot, Elsewhere, Reading
from automl.devices.promises import Promise
from automl.trial import DeviceId, Placement, ProcessId


def unseen(
    reading: Reading, ledger: LedgerSnapshot, coming: Placement | None = None
) -> tuple[Promise, ...]:
    """By GPU and process; `coming`: a placement that is about to be reserved."""
    snapshots = {snapshot.address: snapshot for snapshot in reading.devices}
    found = [
        promise
        for device, page in ledger.pages.items()
        if not device.on_host
        for promise in _of_page(device, page, reading, snapshots.get(device))
    ]
    shares = () if coming is None else coming.shares
    new = (
        Promise(s.device.uuid, "coming", s.reservation_bytes + context_bytes(s.device))
        for s in shares
        if not s.device.on_host
    )
    return (*found, *new)


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
            yield Promise(device.uuid, f"t{min(r.key for r in held)}", size)


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
    for p in () if snapshot is None else snapshot.processes:
        process = ProcessId(device.node, p.pid)
        found[process] = max(found.get(process, 0), p.least_bytes or 0)
    return found
