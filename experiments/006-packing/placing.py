"""What one decision of `place_trial` costs, on 1, 8 and 64 devices: `python placing.py`."""

from __future__ import annotations

import statistics
import sys
import time

from automl.admission.accounting.device_accounts import DeviceAccounts
from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, HostState
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    DeviceId,
    DeviceShare,
    Placement,
    ProcessId,
    ResourceRequest,
)

GIB = 2**30
N_DECISIONS = 300
LIMITS = AdmissionLimits(None, headroom_bytes=0, stale_seconds=1e9, max_per_gpu=16)


def decision_seconds(n_devices: int, n_running: int) -> float:
    """The median of many decisions, each followed by a reservation that is given back."""
    devices = [DeviceId(LOCAL_NODE, f"GPU-{number}") for number in range(n_devices)]
    ledger, accounts = Ledger(), DeviceAccounts()
    held: dict[tuple[DeviceId, ProcessId], int] = {}
    for key in range(n_running):
        device, process = devices[key % n_devices], ProcessId(LOCAL_NODE, key + 10)
        ledger.reserve(key, Placement((DeviceShare(device, "GPU", 5 * GIB),)), process)
        ledger.context_up(key, -1.0)
        held |= {(device, process): 4 * GIB, (LOCAL_HOST, process): GIB}
    snapshots = tuple(DeviceSnapshot(device, "GPU", 80 * GIB, 40 * GIB) for device in devices)
    host = HostState(free_bytes=1024 * GIB, busy=0.5)
    reading, seconds = DeviceReading(0.0, snapshots, held, held, hosts={LOCAL_NODE: host}), []
    for _ in range(N_DECISIONS):
        begun = time.perf_counter()
        found = place_trial(
            ResourceRequest(6 * GIB),
            reading,
            ledger.snapshot(),
            LIMITS,
            now_seconds=0.0,
            accounts=accounts,
        )
        seconds.append(time.perf_counter() - begun)
        assert isinstance(found, Placement)
        ledger.reserve(-1, found, ProcessId(LOCAL_NODE, 1))
        ledger.release(-1, 0.0)
    return statistics.median(seconds)


def main() -> None:
    base = decision_seconds(1, 8)
    for n_devices, n_running in ((1, 8), (8, 64), (64, 512)):
        seconds = decision_seconds(n_devices, n_running)
        sys.stdout.write(
            f"{n_devices} devices, {n_running} running: {seconds * 1e6:.0f} us, "
            f"{seconds / base:.1f} times\n"
        )


if __name__ == "__main__":
    main()
