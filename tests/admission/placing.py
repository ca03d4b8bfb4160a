"""Plain values to place with, and a decision whose invariant is checked, for tests of placing."""

from __future__ import annotations

from dataclasses import replace

from automl.admission.accounting.account import DeviceAccount, make_account
from automl.admission.accounting.ledger import Ledger, LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import (
    LOCAL_HOST,
    DeviceId,
    Placement,
    ProcessId,
    ResourceRequest,
)
from tests.places import device_id, placed, process_id

ME, OTHER_WORKER = process_id(100), process_id(101)
STRANGER = 4121
GPU = device_id("GPU-a")
LIMITS = AdmissionLimits(max_concurrent_trials=64, headroom_bytes=GIB, stale_seconds=5.0)
NOW = 1000.0


def gpu(letter: str = "a", total: int = 24, free: int = 24, **more: object) -> DeviceSnapshot:
    """A GPU with sizes in GiB."""
    address = device_id(f"GPU-{letter}")
    snapshot = DeviceSnapshot(address, "NVIDIA Stub", total * GIB, free * GIB)
    return replace(snapshot, **more)  # type: ignore[arg-type]


def host(total: int = 16, free: int = 16) -> DeviceSnapshot:
    return DeviceSnapshot(LOCAL_HOST, "cpu", total * GIB, free * GIB)


def reading(*devices: DeviceSnapshot, **more: object) -> DeviceReading:
    return replace(DeviceReading(NOW, tuple(devices)), **more)  # type: ignore[arg-type]


def reserved(uuid: str, process: ProcessId, size: int) -> dict[tuple[DeviceId, ProcessId], int]:
    return {(device_id(uuid), process): size * GIB}


def ledger_with(*promises: tuple[str, int, ProcessId], context_ready: bool = True) -> Ledger:
    """Promises: (device uuid, GiB, process)."""
    ledger = Ledger()
    for key, (uuid, size, process) in enumerate(promises):
        ledger.reserve(key, placed(uuid, size * GIB), process)
        if context_ready:
            ledger.context_up(key, NOW - 1)
    return ledger


def decide(
    request: ResourceRequest,
    reading: DeviceReading | None,
    ledger: Ledger | None = None,
    **more: object,
) -> Placement | AdmissionRefusal:
    promised = LedgerSnapshot() if ledger is None else ledger.snapshot()
    limits = replace(LIMITS, **more)  # type: ignore[arg-type]
    decision = place_trial(request, reading, promised, limits, now_seconds=NOW, process=ME)
    if isinstance(decision, Placement):
        assert reading is not None
        check_invariant(decision, reading, promised, limits)
    return decision


def check_invariant(
    p: Placement, reading: DeviceReading, promised: LedgerSnapshot, limits: AdmissionLimits
) -> None:
    """On each device admitted to: Σ hold + foreign + pending contexts + headroom ≤ total."""
    for share in p.shares:
        device = next(d for d in reading.devices if d.address == share.device)
        a = make_account(device, reading, promised.on(device.address), limits.headroom_bytes)
        assert _taken(a) + share.reservation_bytes <= device.total_bytes
        assert a.n_trials + 1 <= limits.max_trials_on(share.device)


def _taken(a: DeviceAccount) -> int:
    return a.hold_bytes + a.foreign_bytes + a.pending_bytes + a.headroom_bytes


def refusal(decision: Placement | AdmissionRefusal) -> str:
    assert isinstance(decision, AdmissionRefusal), decision
    return decision.reason


def uuid(decision: Placement | AdmissionRefusal) -> str:
    assert isinstance(decision, Placement), decision
    (device,) = decision.devices
    return device.uuid
