"""What a trial on a GPU takes of its machine besides: main memory and cores. Pure.

Main memory is as scarce as a GPU's, and whoever takes too much of it is killed. So each process is
counted with the most that any of them was seen to take; cores, which are only shared, count where
all of them are busy, or will be with what has just started.

Where trials train on the machine itself beside those on GPUs, both kinds count in both sums: what
one was promised and does not hold yet is no room for the other. And a core and a process's memory
are kept for each GPU, used or not, so that no GPU waits for what the CPU has taken up.

Each machine of a cluster has its own sums. `device_accounts.py` keeps them by device,
`host_share.py` adds up
those of a machine when it is asked for, `placement_policy.py` decides by them, `refusals.py` has
the words.

The machines beside their GPUs, for one decision: each is added up once it is asked for. Pure.

A cluster has thousands, of which a decision asks for those of the devices that would do.
`host_share.py` has the sums.
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
"""Of main memory, until a process was seen that trains: CUDA's and torch's libraries, and some."""
BUSY = 0.95
"""Share of the cores from which on they are used up."""


@dataclass(frozen=True)
class HostShare:
    """What our trials take of a machine, as far as a reading does not show it."""

    n_running: int = 0
    """Trials on its GPUs."""
    n_on_host: int = 0
    """Those that train on the machine itself."""
    n_coming: int = 0
    """Those of both whose process the reading did not know: nor does it show their load."""
    coming_bytes: int = 0
    """The most that processes of the first will take yet."""
    promised_bytes: int = 0
    """What the second were promised, and do not hold yet."""

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


def process_bytes(ledger: LedgerSnapshot) -> int:
    """The most main memory that a process which trains on a GPU takes, by what was seen."""
    return ledger.host_peak_bytes or PROCESS_BOUND_BYTES


def host_share_of(
    device: DeviceId, page: DeviceLedgerPage, reading: DeviceReading, most_bytes: int
) -> HostShare:
    """Of the trials of one device; one that has several counts on its first."""
    held = reading.held_after_on(host_device_of(device.node))
    running = [r for r in page.reservations if r.placement.devices[0] == device]
    n_coming = sum(r.holder not in held for r in running)
    if device.on_host:
        promised: dict[ProcessId, int] = {}
        for r in running:
            promised[r.holder] = promised.get(r.holder, 0) + r.counted_bytes(device)
        left = sum(max(0, size - held.get(holder, 0)) for holder, size in promised.items())
        return HostShare(n_on_host=len(running), n_coming=n_coming, promised_bytes=left)
    coming = sum(max(0, most_bytes - held.get(r.holder, 0)) for r in running)
    return HostShare(n_running=len(running), n_coming=n_coming, coming_bytes=coming)


@dataclass(frozen=True)
class HostReserve:
    """What trials that train on the machine itself leave of it for its GPUs."""

    n_cores: int = 0
    size_bytes: int = 0


def kept_for_gpus(
    node: str,
    reading: DeviceReading,
    ledger: LedgerSnapshot,
    share: HostShare,
    idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]],
    *,
    in_threads: bool,
) -> HostReserve:
    """A core for each trial on a GPU, and for each GPU; and what their processes will take yet.
    (Of a GPU that is another sweep's nothing.)

    Nothing for GPUs that have no trial while nothing of ours runs: where the machine is too small
    for all of them, what can only train on it still has its turn.
    """
    left = [d.address for d in reading.on_node(node) if not d.lost and d.closed is None]
    gpus = [device for device in left if not device.on_host]
    free = [] if share.is_empty else [d for d in gpus if not ledger.on(d).reservations]
    n_cores = max(share.n_running, len(gpus))
    if in_threads:
        return HostReserve(n_cores)
    held, most_bytes = reading.held_after_on(host_device_of(node)), process_bytes(ledger)
    there = (max((held.get(p, 0) for p in idle.get((d,), ())), default=0) for d in free)
    unused_bytes = sum(max(0, most_bytes - size) for size in there)
    return HostReserve(n_cores, share.coming_bytes + unused_bytes)


def n_left_for_cpu(n_cores: int, kept: HostReserve, share: HostShare) -> int:
    """How many trials the machine itself trains at most, of so many; one where it has fewer cores
    than GPUs, as long as these have nothing to do."""
    return max(0 if share.n_running else 1, n_cores - kept.n_cores)


@dataclass(frozen=True)
class HostRoom:
    """What a machine has left for one more trial on a GPU. The first always may start."""

    n_running: int = 0
    """On GPUs and on the machine itself."""
    has_cores: bool = True
    room_bytes: float = math.inf
    process_bytes: int = 0
    """What a process takes."""
    held_bytes: Mapping[ProcessId, int] = field(default_factory=dict)
    """What those that are there have of it already."""

    def takes(self, idle: Sequence[ProcessId]) -> bool:
        """Whether there is room for one more: in one of these processes, or in a new one."""
        there = min((self.held_bytes.get(process, 0) for process in idle), default=0)
        return self.has_cores and max(0, self.process_bytes - there) <= self.room_bytes


def host_room(
    node: str,
    reading: DeviceReading,
    ledger: LedgerSnapshot,
    share: HostShare,
    *,
    headroom_bytes: int,
    n_cores_allow: int,
    in_threads: bool,
    helpers_bytes: int = 0,
) -> HostRoom:
    """`in_threads`: trials take no processes of their own, so that their cores alone count.
    `helpers_bytes` are of those that a trial's own process starts."""
    host = reading.hosts.get(node)
    if host is None or share.is_empty:
        return HostRoom()
    n_running = share.n_running + share.n_on_host
    load = (host.busy or 0.0) + share.n_coming / n_cores_allow
    has_cores = host.busy is None or n_running < n_cores_allow or load < BUSY
    if in_threads:
        return HostRoom(n_running, has_cores)
    room_bytes = host.free_bytes - share.coming_bytes - share.promised_bytes - headroom_bytes
    held = reading.held_after_on(host_device_of(node))
    one_bytes = process_bytes(ledger) + helpers_bytes
    return HostRoom(n_running, has_cores, room_bytes, one_bytes, held)


class HostRooms:
    """What each machine has for trials on its GPUs, and what these leave of it."""

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
        """`share_of` a machine: see `DeviceAccounts.host_share`. `in_threads`: see `host_room`."""
        self._reading, self._ledger, self._limits = reading, ledger, limits
        self._share_of, self._idle, self._in_threads = share_of, idle, in_threads
        self._rooms: dict[str, HostRoom] = {}
        self._kept: dict[str, HostReserve] = {}

    def room(self, node: str) -> HostRoom:
        """For one more trial on a GPU there."""
        if node not in self._rooms:
            self._rooms[node] = host_room(
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

    def most(self, device: DeviceId) -> int:
        """The most trials on a device; on a machine itself beside those on its GPUs."""
        return self._limits.on(device) - self.n_kept(device)

    def n_kept(self, device: DeviceId) -> int:
        """How many fewer trials train on a machine itself, since it has GPUs."""
        if not device.on_host or not (kept := self._kept_on(device.node)).n_cores:
            return 0
        left = n_left_for_cpu(self._n_places(device.node), kept, self._share(device.node))
        return max(0, self._limits.on(device) - left)

    def with_kept(self, a: DeviceAccount) -> DeviceAccount:
        """A machine's own account knows nothing of what is kept there for its GPUs."""
        here = a.device.address
        kept = self._kept_on(here.node).size_bytes if here.on_host else 0
        return replace(a, kept_bytes=kept) if kept else a

    def _kept_on(self, node: str) -> HostReserve:
        if node not in self._kept:
            self._kept[node] = kept_for_gpus(
                node,
                self._reading,
                self._ledger,
                self._share(node),
                self._idle,
                in_threads=self._in_threads,
            )
        return self._kept[node]

    def _share(self, node: str) -> HostShare:
        """Nothing of a machine of which nothing is known."""
        if node not in self._reading.hosts:
            return HostShare()
        return self._share_of(node, self._reading, self._ledger)

    def _n_places(self, node: str) -> int:
        return self._limits.beside_gpus(node, self._reading.hosts.get(node))
