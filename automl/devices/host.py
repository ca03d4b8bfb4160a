"""The machine as a device: memory and cores, the smaller of machine, control group and affinity.

It serves machines without a GPU, through the same admission as a GPU. Its load is not read: there
is no second host to prefer, and trials are counted by cores.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from automl.devices import cgroup
from automl.devices.device import DeviceReader, DeviceReadError, DeviceSnapshot, HostState
from automl.trial import HOST, DeviceId


class HostReader(DeviceReader):
    """Reads the machine. `root` is `/`; tests put a tree of their own there."""

    def __init__(self, root: Path = cgroup.ROOT) -> None:
        self._root = root

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return (HOST,)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        total, free = host_memory(self._root)
        return (
            DeviceSnapshot(
                address=HOST,
                name="cpu",
                total_bytes=total,
                free_bytes=free,
            ),
        )

    def close(self) -> None:
        """Nothing is held."""


def host_memory(root: Path = cgroup.ROOT) -> tuple[int, int]:
    """Bytes in all, and bytes that new work could take without swapping. Raises DeviceReadError."""
    try:
        machine = psutil.virtual_memory()
    except (OSError, ValueError, psutil.Error) as error:
        raise DeviceReadError(f"the machine's memory cannot be read: {error}") from error
    total, free = machine.total, machine.available
    limit = cgroup.memory_limit(root)
    if limit is not None:  # version 1 says "no limit" with 2^63, which the machine is below
        total, free = min(total, limit.limit_bytes), min(free, limit.left_bytes)
    return total, min(free, total)


def host_state(root: Path = cgroup.ROOT) -> HostState | None:
    """Memory and load of the machine; None: they cannot be read. From one thread, since load is
    counted since its last call; of a quota of CPU time the load knows nothing."""
    try:
        loads = psutil.cpu_percent(percpu=True)
        _, free = host_memory(root)
    except (DeviceReadError, OSError, psutil.Error):
        return None
    ours = os.sched_getaffinity(0) if sys.platform == "linux" else range(len(loads))
    of_ours = [load for core, load in enumerate(loads) if core in ours]
    return HostState(free, sum(of_ours) / len(of_ours) / 100 if of_ours else None)


def usable_cores(root: Path = cgroup.ROOT) -> int:
    """Cores this process may keep busy, at least 1: affinity, and whole cores of the quota."""
    if sys.platform == "linux":
        n_cores = len(os.sched_getaffinity(0))
    else:
        n_cores = os.cpu_count() or 1
    quota = cgroup.cpu_limit(root)
    return n_cores if quota is None else max(1, min(n_cores, int(quota)))


def own_memory_bytes() -> int:
    """Main memory that this process holds (resident set)."""
    return int(psutil.Process().memory_info().rss)
