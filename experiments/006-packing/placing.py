"""What one decision of `place_trial` costs, on 1 to 8,000 devices: `python placing.py`."""

from __future__ import annotations

import statistics
import sys
import time

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, HostState
from automl.trial import (
    LOCAL_NODE,
    DeviceId,
    DeviceShare,
    Placement,
    ProcessId,
    ResourceRequest,
    host_device_of,
)

GIB = 2**30
N_DECISIONS = 300
LIMITS = AdmissionLimits(None, headroom_bytes=0, stale_seconds=1e9, max_per_gpu=16)


def decision_seconds(n_devices: int, n_running: int) -> float:
    """The median of many decisions, each followed by a reservation that is given back.

    More than 64 devices are eight on each of many nodes.
    """
    on_node = LOCAL_NODE if n_devices <= 64 else "node-{}"
    devices = [DeviceId(on_node.format(n // 8), f"GPU-{n}") for n in range(n_devices)]
    ledger, table = Ledger(), DeviceTable()
    held: dict[tuple[DeviceId, ProcessId], int] = {}
    for key in range(n_running):
        device = devices[key % n_devices]
        process = ProcessId(device.node, key + 10)
        ledger.reserve(key, Placement((DeviceShare(device, "GPU", 5 * GIB),)), process)
        ledger.context_up(key, -1.0)
        held |= {(device, process): 4 * GIB, (host_device_of(device.node), process): GIB}
    snapshots = tuple(DeviceSnapshot(device, "GPU", 80 * GIB, 40 * GIB) for device in devices)
    hosts = {device.node: HostState(free_bytes=1024 * GIB, busy=0.5) for device in devices}
    reading, seconds = DeviceReading(0.0, snapshots, held, held, hosts=hosts), []
    for _ in range(N_DECISIONS):
        begun = time.perf_counter()
        found = place_trial(
            ResourceRequest(6 * GIB),
            reading,
            ledger.snapshot(),
            LIMITS,
            now_seconds=0.0,
            table=table,
        )
        seconds.append(time.perf_counter() - begun)
        assert isinstance(found, Placement)
        ledger.reserve(-1, found, ProcessId(found.node, 1))
        ledger.release(-1, 0.0)
    return statistics.median(seconds)


def main() -> None:
    base = decision_seconds(1, 8)
    for n_devices, n_running in ((1, 8), (8, 64), (64, 512), (8_000, 16_000)):
        seconds = decision_seconds(n_devices, n_running)
        sys.stdout.write(
            f"{n_devices} devices, {n_running} running: {seconds * 1e6:.0f} us, "
            f"{seconds / base:.1f} times\n"
        )


if __name__ == "__main__":
    main()
