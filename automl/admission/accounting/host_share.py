"""Computes what trials take of their machines: main memory and cores. Pure.

A process that takes too much main memory is killed. So each process counts with the most that any
was seen to take. Cores are only shared: they count where all of them are busy, or will be with the
trials that have just started.

Where trials train on the machine itself beside those on GPUs, both kinds count in both sums: what
one was promised and does not hold yet is no room for the other. A core and the memory of a process
are kept for each GPU, used or not, so that no GPU waits for what the CPU has taken.

Each machine of a cluster has its own sums, which `device_table.py` keeps by device.
`HostCapacities` adds up a machine only when a decision asks for it, since a cluster may have
thousands. `placement_policy.py` decides by them, and `refusals.py` words the refusals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from automl.admission.accounting.account import DeviceAccount
from automl.admission.accounting.ledger import DeviceLedgerPage, LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, ProcessId, host_device_of

PROCESS_BOUND_BYTES = 1024**3
"""Main memory of a process, until one that trains was seen: libraries of CUDA and torch, and some
more."""
BUSY = 0.95
"""Share of the cores from which on they count as used up."""


@dataclass(frozen=True)
class HostShare:
    """What our trials take of a machine, as far as a reading does not show it."""

    n_running: int = 0
    """Number of trials on the machine's GPUs."""
    n_on_host: int = 0
    """Number of trials that train on the machine itself."""
    n_coming: int = 0
    """Number of trials of both sorts whose process the reading did not know and whose load it does
    not show."""
    coming_bytes: int = 0
    """The most main memory that processes of trials on GPUs will take in addition."""
    promised_bytes: int = 0
    """Memory that was promised to trials on the machine itself and that they do not hold yet."""

    def __add__(self, other: HostShare) -> HostShare:
        return HostShare(
            self.n_running + other.n_running,
            self.n_on_host + other.n_on_host,
            self.n_coming + other.n_coming,
            self.coming_bytes + other.coming_bytes,
            self.promised_bytes + other.promised_bytes,
        )

    @property
    def is_empty(self) -> bool:
        return not (self.n_running or self.n_on_host)


def gpu_process_bytes(ledger: LedgerSnapshot) -> int:
    """Return the most main memory that a process which trains on a GPU was seen to take."""
    return ledger.host_peak_bytes or PROCESS_BOUND_BYTES


def host_share_of(
    device: DeviceId, page: DeviceLedgerPage, reading: DeviceReading, most_bytes: int
) -> HostShare:
    """Return the share of the trials of one device; a trial of several devices counts on its
    first."""
    held = reading.held_after_on(host_device_of(device.node))
    running = [r for r in page.reservations if r.placement.devices[0] == device]
    n_coming = sum(r.holder not in held for r in running)
    if device.on_host:
        promised: dict[ProcessId, int] = {}
        for r in running:
            promised[r.holder] = promised.get(r.holder, 0) + r.counted_bytes(device)
        missing = sum(max(0, size - held.get(holder, 0)) for holder, size in promised.items())
        return HostShare(n_on_host=len(running), n_coming=n_coming, promised_bytes=missing)
    coming = sum(max(0, most_bytes - held.get(r.holder, 0)) for r in running)
    return HostShare(n_running=len(running), n_coming=n_coming, coming_bytes=coming)


@dataclass(frozen=True)
class HostReserve:
    """What trials on the machine itself must leave of it for its GPUs."""

    n_cores: int = 0
    size_bytes: int = 0


def reserve_host_for_gpus(
    node: str,
    reading: DeviceReading,
    ledger: LedgerSnapshot,
    share: HostShare,
    idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]],
    *,
    in_threads: bool,
) -> HostReserve:
    """Return a core for each trial on a GPU, and for each GPU, and the memory that their processes
    will still take, or have taken since the reading.

    A GPU that belongs to another sweep gets nothing. GPUs without a trial get no memory while
    nothing of ours runs: a machine that is too small for all of them still serves trials that can
    only train on it.
    """
    usable = [d.address for d in reading.on_node(node) if not d.lost and d.closed is None]
    gpus = [device for device in usable if not device.on_host]
    free = [] if share.is_empty else [d for d in gpus if not ledger.on(d).reservations]
    n_cores = max(share.n_running, len(gpus))
    if in_threads:
        return HostReserve(n_cores)
    held, most_bytes = reading.held_after_on(host_device_of(node)), gpu_process_bytes(ledger)
    size_bytes = share.coming_bytes
    for device in gpus:
        sizes = [held.get(process, 0) for process in idle.get((device,), ())]
        if n_unseen := sizes.count(0):  # the reading is older than what they hold
            size_bytes += n_unseen * most_bytes
        elif device in free:
            size_bytes += max(0, most_bytes - max(sizes, default=0))
    return HostReserve(n_cores, size_bytes)


def max_cpu_trials(n_cores: int, kept: HostReserve, share: HostShare) -> int:
    """Return how many of the places are left for trials on the machine itself.

    A machine with fewer cores than GPUs leaves one core while the GPUs have nothing to do.
    """
    return max(0 if share.n_running else 1, n_cores - kept.n_cores)


@dataclass(frozen=True)
class HostCapacity:
    """What a machine has left for one more trial on a GPU. The first trial may always start."""

    n_running: int = 0
    """Number of trials on GPUs and on the machine itself."""
    has_cores: bool = True
    room_bytes: float = math.inf
    process_bytes: int = 0
    """Main memory that a process takes."""
    held_bytes: Mapping[ProcessId, int] = field(default_factory=dict)
    """Main memory that the present processes hold already."""

    def takes(self, idle: Sequence[ProcessId]) -> bool:
        """Return whether there is room for one more trial, in one of these idle processes or in a
        new one."""
        if not self.has_cores:
            return False
        held_already = min(self.held_bytes.get(process, 0) for process in idle) if idle else 0
        return max(0, self.process_bytes - held_already) <= self.room_bytes


def find_host_room(
    node: str,
    reading: DeviceReading,
    ledger: LedgerSnapshot,
    share: HostShare,
    *,
    headroom_bytes: int,
    n_cores_allow: int,
    in_threads: bool,
    helpers_bytes: int = 0,
) -> HostCapacity:
    """Return what a machine has left for one more trial on a GPU.

    `in_threads`: trials take no processes of their own, so only their cores count. `helpers_bytes`
    is the memory of the processes that a trial's own process starts.
    """
    host = reading.hosts.get(node)
    if host is None or share.is_empty:
        return HostCapacity()
    n_running = share.n_running + share.n_on_host
    load = (host.busy or 0.0) + share.n_coming / n_cores_allow
    has_cores = host.busy is None or n_running < n_cores_allow or load < BUSY
    if in_threads:
        return HostCapacity(n_running, has_cores)
    room_bytes = host.free_bytes - share.coming_bytes - share.promised_bytes - headroom_bytes
    held = reading.held_after_on(host_device_of(node))
    needed_bytes = gpu_process_bytes(ledger) + helpers_bytes
    return HostCapacity(n_running, has_cores, room_bytes, needed_bytes, held)


class HostCapacities:
    """What each machine has for trials on its GPUs, and what these leave of it, for one
    decision."""

    def __init__(
        self,
        reading: DeviceReading,
        ledger: LedgerSnapshot,
        limits: AdmissionLimits,
        share_of: Callable[[str, DeviceReading, LedgerSnapshot], HostShare],
        *,
        idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]],
        in_threads: bool,
    ) -> None:
        """Take the inputs of one decision.

        `share_of` returns the share of a machine, like `DeviceTable.host_share`. `in_threads`
        has the same meaning as in `find_host_room`.
        """
        self._reading, self._ledger, self._limits = reading, ledger, limits
        self._share_of, self._idle, self._in_threads = share_of, idle, in_threads
        self._rooms: dict[str, HostCapacity] = {}
        self._kept: dict[str, HostReserve] = {}

    def room(self, node: str) -> HostCapacity:
        """Return what the machine has left for one more trial on a GPU there."""
        if node not in self._rooms:
            self._rooms[node] = find_host_room(
                node,
                self._reading,
                self._ledger,
                self._share(node),
                headroom_bytes=self._limits.headroom_bytes,
                n_cores_allow=self._n_places(node),
                helpers_bytes=self._limits.helpers_bytes,
                in_threads=self._in_threads,
            )
        return self._rooms[node]

    def most_trials(self, device: DeviceId) -> int:
        """Return the most trials on a device; on a machine itself what its GPUs leave."""
        return self._limits.max_trials_on(device) - self.n_kept(device)

    def n_kept(self, device: DeviceId) -> int:
        """Return how many fewer trials train on a machine itself because it has GPUs."""
        if not device.on_host or not (kept := self._kept_on(device.node)).n_cores:
            return 0
        left = max_cpu_trials(self._n_places(device.node), kept, self._share(device.node))
        return max(0, self._limits.max_trials_on(device) - left)

    def with_kept(self, a: DeviceAccount) -> DeviceAccount:
        """Return the account with what is kept on a machine for its GPUs, which its own account
        does not know."""
        here = a.device.address
        kept = self._kept_on(here.node).size_bytes if here.on_host else 0
        return replace(a, kept_bytes=kept) if kept else a

    def _kept_on(self, node: str) -> HostReserve:
        if node not in self._kept:
            self._kept[node] = reserve_host_for_gpus(
                node,
                self._reading,
                self._ledger,
                self._share(node),
                self._idle,
                in_threads=self._in_threads,
            )
        return self._kept[node]

    def _share(self, node: str) -> HostShare:
        """Return the share of a machine; empty where the reading does not show the machine."""
        if node not in self._reading.hosts:
            return HostShare()
        return self._share_of(node, self._reading, self._ledger)

    def _n_places(self, node: str) -> int:
        return self._limits.beside_gpus(node, self._reading.hosts.get(node))
