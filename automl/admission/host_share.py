"""What a trial on a GPU takes of its machine besides: main memory and cores. Pure.

Main memory is as scarce as a GPU's, and whoever takes too much of it is killed. So each process is
counted with the most that any of them was seen to take; cores, which are only shared, count where
all of them are busy, or will be with what has just started.

Where trials train on the machine itself beside those on GPUs, both kinds count in both sums: what
one was promised and does not hold yet is no room for the other. And a core and a process's memory
are kept for each GPU, used or not, so that no GPU waits for what the CPU has taken up.

Each machine of a cluster has its own sums. `accounts.py` keeps them by device, `hosts.py` adds up
those of a machine when it is asked for, `policy.py` decides by them, `reasons.py` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automl.admission.ledger import LedgerSnapshot, Page
from automl.devices.device import Reading
from automl.trial import DeviceId, ProcessId, host_of

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


def share_of(device: DeviceId, page: Page, reading: Reading, most_bytes: int) -> HostShare:
    """Of the trials of one device; one that has several counts on its first."""
    held = reading.held_after_on(host_of(device.node))
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
class Kept:
    """What trials that train on the machine itself leave of it for its GPUs."""

    n_cores: int = 0
    size_bytes: int = 0


def kept_for_gpus(
    node: str,
    reading: Reading,
    ledger: LedgerSnapshot,
    share: HostShare,
    idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]],
    *,
    in_threads: bool,
) -> Kept:
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
        return Kept(n_cores)
    held, most_bytes = reading.held_after_on(host_of(node)), process_bytes(ledger)
    there = (max((held.get(p, 0) for p in idle.get((d,), ())), default=0) for d in free)
    unused_bytes = sum(max(0, most_bytes - size) for size in there)
    return Kept(n_cores, share.coming_bytes + unused_bytes)


def n_left_for_cpu(n_cores: int, kept: Kept, share: HostShare) -> int:
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
    reading: Reading,
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
    held = reading.held_after_on(host_of(node))
    one_bytes = process_bytes(ledger) + helpers_bytes
    return HostRoom(n_running, has_cores, room_bytes, one_bytes, held)
