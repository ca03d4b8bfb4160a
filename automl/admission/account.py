"""Where the memory of a device is, by one reading and the ledger. Pure.

    reserved(p)  what our process p holds of the device
    hold(p)    = max(reserved(p), Σ max(request, observed peak) over its admitted trials)
    foreign    = max(0, total − free − Σ reserved(p))
    room       = total − foreign − Σ hold(p) − contexts not yet visible − headroom

`reserved` is read just before and just after the driver is asked, while it may change: `foreign`
is computed with the smaller and `hold` with the larger, so that both err on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass

from automl.admission.ledger import LedgerSnapshot
from automl.devices.device import DeviceSnapshot, HeldBytes, Reading
from automl.trial import DeviceId, ProcessId

CUDA_CONTEXT_BYTES = 600 * 1024**2
"""What a new process takes of a GPU before its first tensor. Measured 400–560 MiB on current
drivers and torch; counted only until the driver shows the real figure."""


@dataclass(frozen=True)
class DeviceAccount:
    """One device. Sizes in bytes."""

    device: DeviceSnapshot
    foreign_bytes: int
    hold_bytes: int
    pending_bytes: int
    headroom_bytes: int
    n_trials: int
    exclusive: bool
    own_processes: frozenset[ProcessId]

    @property
    def room_bytes(self) -> int:
        return (
            self.device.total_bytes
            - self.foreign_bytes
            - self.hold_bytes
            - self.pending_bytes
            - self.headroom_bytes
        )

    @property
    def empty_room_bytes(self) -> int:
        """Room on the device if nothing else were there."""
        return self.device.total_bytes - self.headroom_bytes - context_bytes(self.device.address)


def account(
    device: DeviceSnapshot, reading: Reading, ledger: LedgerSnapshot, headroom_bytes: int
) -> DeviceAccount:
    """Add up one device. See the head of this module for the formula."""
    here = device.address
    reservations = ledger.on(here)
    visible = {
        ProcessId(here.node, p.pid): p.used_bytes
        for p in device.processes
        if p.used_bytes is not None
    }
    before, after = _of(here, reading.reserved_before), _of(here, reading.reserved_after)
    low = {p: min(before.get(p, 0), after.get(p, 0)) for p in {*before, *after}}
    high = {p: max(before.get(p, 0), after.get(p, 0)) for p in low}
    promised: dict[ProcessId | None, int] = {}
    for r in reservations:
        promised[r.process] = promised.get(r.process, 0) + r.counted_bytes(here)
        if r.process is not None and r.process not in high and r.process in visible:
            # A process that cannot report counts by the driver's own word.
            low[r.process] = high[r.process] = visible[r.process]
    hold = sum(max(high.get(p, 0), promised.get(p, 0)) for p in {*high, *promised} if p is not None)
    pending = context_bytes(here) * ledger.n_pending_contexts(here, reading.begun_seconds)
    return DeviceAccount(
        device=device,
        foreign_bytes=max(0, device.total_bytes - device.free_bytes - sum(low.values())),
        hold_bytes=hold + promised.get(None, 0),
        pending_bytes=pending,
        headroom_bytes=headroom_bytes,
        n_trials=len(reservations),
        exclusive=any(r.placement.exclusive for r in reservations),
        own_processes=frozenset(p for p in {*high, *promised} if p is not None),
    )


def context_bytes(device: DeviceId) -> int:
    """What a new process of ours will take of the device besides its trials."""
    return 0 if device.on_host else CUDA_CONTEXT_BYTES


def _of(device: DeviceId, held: HeldBytes) -> dict[ProcessId, int]:
    return {process: size for (where, process), size in held.items() if where == device}
