"""What a trial on a GPU takes of the machine besides: main memory and cores. Pure.

Main memory is as scarce as a GPU's, and whoever takes too much of it is killed. So each process is
counted with the most that any of them was seen to take; cores, which are only shared, count where
all of them are busy, or will be with what has just started.

`account.py` keeps the sums by device, `policy.py` decides by them, `reasons.py` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automl.admission.ledger import LedgerSnapshot, Page
from automl.devices.device import Reading
from automl.trial import HOST, LOCAL_NODE, DeviceId, ProcessId

PROCESS_BOUND_BYTES = 1024**3
"""Of main memory, until a process was seen that trains: CUDA's and torch's libraries, and some."""
BUSY = 0.95
"""Share of the cores from which on they are used up."""


@dataclass(frozen=True)
class HostShare:
    """What trials on GPUs of this machine take of it, as far as a reading does not show it."""

    n_running: int = 0
    n_coming: int = 0
    """Those of them whose process the reading did not know: nor does it show their load."""
    coming_bytes: int = 0
    """The most that their processes will take yet."""

    def __add__(self, other: HostShare) -> HostShare:
        return HostShare(
            self.n_running + other.n_running,
            self.n_coming + other.n_coming,
            self.coming_bytes + other.coming_bytes,
        )


def process_bytes(ledger: LedgerSnapshot) -> int:
    """The most main memory that a process which trains on a GPU takes, by what was seen."""
    return ledger.host_peak_bytes or PROCESS_BOUND_BYTES


def share_of(device: DeviceId, page: Page, reading: Reading, most_bytes: int) -> HostShare:
    """Of the trials of one device; one that has several counts on its first."""
    if device.on_host or device.node != LOCAL_NODE:
        return HostShare()
    held = reading.held_after_on(HOST)
    running = [r for r in page.reservations if r.placement.devices[0] == device]
    return HostShare(
        n_running=len(running),
        n_coming=sum(r.holder not in held for r in running),
        coming_bytes=sum(max(0, most_bytes - held.get(r.holder, 0)) for r in running),
    )


@dataclass(frozen=True)
class HostRoom:
    """What the machine has left for one more trial on a GPU. The first always may start."""

    n_running: int = 0
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
    reading: Reading,
    ledger: LedgerSnapshot,
    share: HostShare,
    *,
    headroom_bytes: int,
    n_cores_allow: int,
    in_threads: bool,
) -> HostRoom:
    """`in_threads`: trials take no processes of their own, so that their cores alone count."""
    host = reading.host
    if host is None or not share.n_running:
        return HostRoom()
    load = (host.busy or 0.0) + share.n_coming / n_cores_allow
    has_cores = host.busy is None or share.n_running < n_cores_allow or load < BUSY
    if in_threads:
        return HostRoom(share.n_running, has_cores)
    room_bytes = host.free_bytes - share.coming_bytes - headroom_bytes
    held = reading.held_after_on(HOST)
    return HostRoom(share.n_running, has_cores, room_bytes, process_bytes(ledger), held)
