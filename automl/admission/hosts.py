"""The machines beside their GPUs, for one decision: each is added up once it is asked for. Pure.

A cluster has thousands, of which a decision asks for those of the devices that would do.
`host_share.py` has the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from automl.admission.account import DeviceAccount
from automl.admission.host_share import (
    HostRoom,
    HostShare,
    Kept,
    host_room,
    kept_for_gpus,
    n_left_for_cpu,
)
from automl.admission.ledger import LedgerSnapshot
from automl.admission.limits import Limits
from automl.devices.device import Reading
from automl.trial import DeviceId, ProcessId


class Hosts:
    """What each machine has for trials on its GPUs, and what these leave of it."""

    def __init__(
        self,
        reading: Reading,
        ledger: LedgerSnapshot,
        limits: Limits,
        share_of: Callable[[str, Reading, LedgerSnapshot], HostShare],
        *,
        idle: Mapping[tuple[DeviceId, ...], Sequence[ProcessId]],
        in_threads: bool,
    ) -> None:
        """`share_of` a machine: see `Accounts.host_share`. `in_threads`: see `host_room`."""
        self._reading, self._ledger, self._limits = reading, ledger, limits
        self._share_of, self._idle, self._in_threads = share_of, idle, in_threads
        self._rooms: dict[str, HostRoom] = {}
        self._kept: dict[str, Kept] = {}

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

    def _kept_on(self, node: str) -> Kept:
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
