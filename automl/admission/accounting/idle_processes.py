"""Knows our processes in which nothing runs, for one decision.

A trial reuses one that waits on exactly its devices. The others may be in its way, since they keep
their CUDA context and what torch has cached.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TypeAlias

from automl.admission.accounting.account import DeviceAccount
from automl.trial import DeviceId, ProcessId

Idle: TypeAlias = Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]
"""Our processes in which nothing runs, by their devices."""


class IdleProcesses:
    """The idle processes, as seen by a trial that asks for a number of devices."""

    def __init__(self, idle: Idle, n_devices: int) -> None:
        self._idle, self._n_devices = idle, n_devices

    def to_reuse(self, a: DeviceAccount) -> Sequence[ProcessId]:
        """Return the processes of which a trial of one device would reuse one; none: it needs a new
        process."""
        if not self._idle or self._n_devices > 1:
            return ()
        idle = self._idle.get((a.device.address,), ())
        return idle if len(idle) > a.page.n_coming else ()  # else trials to come may take them

    def on_several(self) -> Idle:
        """Return the processes that have as many devices as the trial asks for, if these are
        several."""
        if self._n_devices == 1:
            return {}
        found = self._idle.items()
        return {devices: here for devices, here in found if len(devices) == self._n_devices}

    def on_one(self) -> Iterator[DeviceId]:
        """Yield devices with an idle process of that device alone, for a trial of one device."""
        if self._n_devices == 1:
            yield from (devices[0] for devices in self._idle if len(devices) == 1)

    def n_on(self, device: DeviceId) -> int:
        return len(self._idle.get((device,), ())) + self._n_of_several[device]

    def on_nodes(self, nodes: Set[str]) -> frozenset[DeviceId]:
        """Return the devices of these nodes on which there are idle processes."""
        return frozenset(device for device in self._devices if device.node in nodes)

    @cached_property
    def nodes(self) -> Set[str]:
        """Nodes on which there are idle processes."""
        return {device.node for device in self._devices}

    @cached_property
    def _devices(self) -> Set[DeviceId]:
        return set(itertools.chain(*(d for d, processes in self._idle.items() if processes)))

    @cached_property
    def _n_of_several(self) -> Mapping[DeviceId, int]:
        """Number of idle processes that have several devices, by device."""
        n_idle = Counter[DeviceId]()
        if sum(map(len, self._idle)) > len(self._idle):  # skips thousands with one device each
            for devices, processes in self._idle.items():
                if len(devices) > 1:
                    n_idle.update(dict.fromkeys(devices, len(processes)))
        return n_idle
