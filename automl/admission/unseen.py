"""What our trials were promised and NVML does not show yet, for other sweeps to know. Pure.

    unseen(p) = max(0, Σ max(request, observed peak) + context − what a reading shows of p)

For others it is foreign memory, besides that which NVML shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from automl.admission.account import context_bytes
from automl.admission.ledger import LedgerSnapshot, Reservation
from automl.devices.device import Elsewhere, Reading
from automl.devices.promises import Promise
from automl.trial import DeviceId, Placement, ProcessId


def unseen(
    reading: Reading, ledger: LedgerSnapshot, coming: Placement | None = None
) -> tuple[Promise, ...]:
    """By GPU and process; `coming`: a placement that is about to be reserved."""
    shown = _shown(reading)
    groups: dict[tuple[DeviceId, ProcessId], list[Reservation]] = {}
    for reservation in ledger.reservations:
        for device in reservation.placement.devices:
            groups.setdefault((device, reservation.holder), []).append(reservation)
    found = [
        Promise(device.uuid, f"t{min(r.key for r in held)}", size)
        for (device, process), held in groups.items()
        if not device.on_host
        and (
            size := _promised(device, process, held, ledger, reading)
            - _seen(device, process, reading, shown)
        )
        > 0
    ]
    shares = () if coming is None else coming.shares
    return (
        *found,
        *(
            Promise(s.device.uuid, "coming", s.reservation_bytes + context_bytes(s.device))
            for s in shares
            if not s.device.on_host
        ),
    )


def with_elsewhere(reading: Reading, now: Elsewhere) -> Reading:
    """The reading with what others promise now. Of what they showed before it was taken and show no
    more, that stays which it may have missed."""
    before = reading.promised_elsewhere
    if not now or all(before.get(key, -1) >= size for key, size in now.items()):
        return reading
    most = {key: max(size, before.get(key, 0)) for key, size in now.items()}
    return replace(reading, promised_elsewhere={**before, **most})


def _promised(
    device: DeviceId,
    process: ProcessId,
    held: list[Reservation],
    ledger: LedgerSnapshot,
    reading: Reading,
) -> int:
    """With its context at the most where NVML may not show it yet, else as far as it is known."""
    context = ledger.contexts.get((device, process))
    size = sum(reservation.counted_bytes(device) for reservation in held)
    if context is None or context.pending(reading.begun_seconds):
        return size + context_bytes(device)
    return size + ledger.context_of(device, process)


def _shown(reading: Reading) -> Mapping[tuple[DeviceId, ProcessId], int]:
    return {
        (d.address, ProcessId(d.address.node, p.pid)): p.least_bytes or 0
        for d in reading.devices
        for p in d.processes
    }


def _seen(
    device: DeviceId,
    process: ProcessId,
    reading: Reading,
    shown: Mapping[tuple[DeviceId, ProcessId], int],
) -> int:
    """The least that the reading has of the process, by NVML or by its own word."""
    where = (device, process)
    own = min(reading.reserved_before.get(where, 0), reading.reserved_after.get(where, 0))
    return max(own, shown.get(where, 0))
