"""Defines what is known of devices at one moment, as plain values; no hardware is asked here.

`nvml.py` and `host.py` take the snapshots, `device_reader.py` takes readings at an interval, and
`admission/` decides by them. Readings of several nodes are merged here into one list of devices,
whose addresses name the node.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar

from automl.devices.device_selection import bare_uuid
from automl.errors import AutoMLError
from automl.trial import LOCAL_NODE, DeviceId, DeviceKind, ProcessId

K = TypeVar("K")

HeldBytes: TypeAlias = "Mapping[tuple[DeviceId, ProcessId], int]"
"""Memory that our own processes hold, by device and process."""
OtherPromises: TypeAlias = "Mapping[tuple[DeviceId, str], int]"
"""Bytes that other sweeps on this machine have promised and NVML does not show.

The key is the GPU, and a word that stays the same while the promise lasts.
"""


class DeviceReadError(AutoMLError):
    """Raised when the devices cannot be read now; a later reading may succeed."""


@dataclass(frozen=True)
class DeviceProcess:
    """A process that holds memory of a GPU. Its pid is only a hint: in a container it may be the
    host's."""

    pid: int
    used_bytes: int | None = None
    """The larger of its sizes just before and just after the device itself was read; None: the
    driver does not tell."""
    least_bytes: int | None = None
    """The smaller of the two sizes; 0 for a process that was present only once."""
    name: str | None = None
    user: str | None = None
    computes: bool = True
    """Whether it computes; a process that only draws is allowed by every compute mode."""
    started_by: int | None = None
    """Our process that started it, directly or through a child: it is then a rank of a trial. None:
    none of our processes did, or it is one itself."""

    @property
    def owner(self) -> int:
        """The process to which its memory counts: our process that started it, or itself."""
        return self.pid if self.started_by is None else self.started_by


@dataclass(frozen=True)
class DeviceSnapshot:
    """One device at one moment."""

    address: DeviceId
    name: str
    total_bytes: int
    free_bytes: int
    utilisation: float | None = None
    """Share of time in which some kernel ran, from 0 to 1; None: not known, or the host."""
    processes: tuple[DeviceProcess, ...] = ()
    max_processes: int | None = None
    """Number of processes that may compute on it: 0 if its compute mode is PROHIBITED, 1 if it is
    EXCLUSIVE_PROCESS. None: any number."""
    fault: str | None = None
    """Why it takes no new trial, in words; its figures may then be old. None: it is well."""
    lost: bool = False
    """Whether its fault is one from which it does not recover by itself."""
    closed: str | None = None
    """Why it takes nothing now although it is well, in words; then `max_processes` or `n_places` is
    0. None: it is open."""
    nvml_number: int | None = None
    """Number of the GPU in NVML's order, as `nvidia-smi` counts."""
    cuda_number: int | None = None
    """Number of the GPU in CUDA's order, as torch counts; None: not known."""
    n_places: int | None = None
    """Number of trials that train there at once, where the device itself sets it; None: not
    known."""
    power_watts: float | None = None
    temperature_celsius: float | None = None

    def __post_init__(self) -> None:
        assert self.total_bytes > 0, self
        assert 0 <= self.free_bytes <= self.total_bytes, self
        assert not self.lost or self.fault is not None, self
        assert self.utilisation is None or 0 <= self.utilisation <= 1, self


@dataclass(frozen=True)
class HostState:
    """The state of a machine apart from its GPUs."""

    free_bytes: int
    busy: float | None = None
    """Share of its cores that worked since the previous reading, from 0 to 1; None: not known."""
    n_places: int | None = None
    """Number of trials that its cores keep busy, whichever sweep holds the cores; None: not
    known."""


@dataclass(frozen=True)
class DeviceReading:
    """All devices at one moment, and what our own processes held just before and just after.

    A reading that failed has an `error` and no devices.
    """

    begun_seconds: float
    """Time at which the reading began, by `time.monotonic()`."""
    devices: tuple[DeviceSnapshot, ...] = ()
    reserved_before: HeldBytes = field(default_factory=dict)
    reserved_after: HeldBytes = field(default_factory=dict)
    promised_elsewhere: OtherPromises = field(default_factory=dict)
    """Promises of other sweeps, read before the devices or later."""
    hosts: Mapping[str, HostState] = field(default_factory=dict)
    """Machines apart from their GPUs, by node. A machine without a GPU, or one that cannot be read,
    is missing."""
    error: str | None = None

    def held_before_on(self, device: DeviceId) -> Mapping[ProcessId, int]:
        """Return what our own processes held of one device just before it was read."""
        return self._held_before.get(device, {})

    def held_after_on(self, device: DeviceId) -> Mapping[ProcessId, int]:
        """Return what our own processes held of one device just after it was read."""
        return self._held_after.get(device, {})

    def promised_elsewhere_on(self, device: DeviceId) -> int:
        """Return the bytes of a device that other sweeps have promised."""
        return sum(self._elsewhere.get(device, {}).values())

    def find(self, device: DeviceId) -> DeviceSnapshot | None:
        """Return the snapshot of a device; None: the reading does not show the device."""
        return self._by_address.get(device)

    # Computed once for each reading, since each of thousands of devices is looked up many times.

    def on_node(self, node: str) -> Sequence[DeviceSnapshot]:
        """Return the devices of one machine."""
        return self._by_node.get(node, ())

    @cached_property
    def kinds(self) -> frozenset[DeviceKind]:
        """The kinds of device that the reading shows."""
        return frozenset(device.address.kind for device in self.devices)

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[DeviceSnapshot]]:
        found: dict[str, list[DeviceSnapshot]] = defaultdict(list)
        for device in self.devices:
            found[device.address.node].append(device)
        return found

    @cached_property
    def _by_address(self) -> Mapping[DeviceId, DeviceSnapshot]:
        return {device.address: device for device in self.devices}

    @cached_property
    def _held_before(self) -> Mapping[DeviceId, Mapping[ProcessId, int]]:
        return _by_device(self.reserved_before)

    @cached_property
    def _held_after(self) -> Mapping[DeviceId, Mapping[ProcessId, int]]:
        return _by_device(self.reserved_after)

    @cached_property
    def _elsewhere(self) -> Mapping[DeviceId, Mapping[str, int]]:
        return _by_device(self.promised_elsewhere)


def _by_device(sizes: Mapping[tuple[DeviceId, K], int]) -> Mapping[DeviceId, Mapping[K, int]]:
    found: dict[DeviceId, dict[K, int]] = defaultdict(dict)
    for (device, key), size in sizes.items():
        found[device][key] = size
    return found


class DeviceReader(Protocol):
    """Reads a fixed set of devices. One thread reads at a time."""

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        """Return the addresses of all devices that it reads, whether they answer now or not."""

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """Return the devices now, at least one, in a lasting order. Raises DeviceReadError."""

    def close(self) -> None:
        """Close the driver. Never waits long, even while a read hangs."""


SILENT_SECONDS = 3.0
"""A node that has been silent for this long gets no new trial."""


@dataclass(frozen=True)
class NodeReading:
    """The last reading that a node sent of its devices."""

    node: str
    reading: DeviceReading
    """The reading, with its times converted to this machine's clock."""
    heard_seconds: float
    """Time at which the node last sent anything."""


def address_on_node(reading: DeviceReading, node: str, n_places: int) -> DeviceReading:
    """Return a machine's reading of its own devices with addresses that name its node.

    Its cores keep `n_places` trials busy, on its host or beside its GPUs.
    """
    devices = tuple(
        replace(
            device,
            address=DeviceId(node, device.address.uuid),
            n_places=n_places if device.address.on_host else None,
        )
        for device in reading.devices
    )
    own = reading.hosts.get(LOCAL_NODE)
    hosts = {} if own is None else {node: replace(own, n_places=n_places)}
    return replace(reading, devices=devices, hosts=hosts)


_NOT_CLAIMED = "not held by this sweep (ray.claim)"


def close_unclaimed_devices(reading: DeviceReading, held: Mapping[DeviceId, int]) -> DeviceReading:
    """Return a node's reading in which every device is closed that this sweep holds no claim of.

    `held` is the number of claims of each device. One claim opens a GPU; a host trains as many
    trials as it has claims.
    """
    n_held = {_node_and_uuid(device): n for device, n in held.items()}
    devices = tuple(
        _with_claims(d, n_held.get(_node_and_uuid(d.address), 0)) for d in reading.devices
    )
    return replace(reading, devices=devices)


def _with_claims(device: DeviceSnapshot, n_held: int) -> DeviceSnapshot:
    if device.address.on_host:
        n_places = min(n_held, n_held if device.n_places is None else device.n_places)
        return replace(device, n_places=n_places, closed=None if n_places else _NOT_CLAIMED)
    return device if n_held else replace(device, max_processes=0, closed=_NOT_CLAIMED)


def _node_and_uuid(device: DeviceId) -> tuple[str, str]:
    return device.node, bare_uuid(device.uuid)


def merge_node_readings(readings: Sequence[NodeReading], now_seconds: float) -> DeviceReading:
    """Return one reading of all nodes, as old as the oldest reading of a node that is not
    silent."""
    heard = [r for r in readings if now_seconds - r.heard_seconds <= SILENT_SECONDS]
    readable = [r for r in readings if r.reading.error is None]
    devices = tuple(
        device if source in heard else _silenced(device, now_seconds - source.heard_seconds)
        for source in readable
        for device in source.reading.devices
    )
    begun = min((r.reading.begun_seconds for r in heard if r in readable), default=now_seconds)
    if not devices:
        errors = [f"{r.node}: {r.reading.error}" for r in readings if r.reading.error]
        return DeviceReading(begun, error="; ".join(errors) or "no node is there")
    return DeviceReading(
        begun,
        devices,
        {where: n for r in readable for where, n in r.reading.reserved_before.items()},
        {where: n for r in readable for where, n in r.reading.reserved_after.items()},
        hosts={node: host for r in readable for node, host in r.reading.hosts.items()},
    )


def _silenced(device: DeviceSnapshot, seconds: float) -> DeviceSnapshot:
    fault = device.fault or f"node {device.address.node} said nothing for {seconds:.0f} s"
    return replace(device, fault=fault)


class NodesReader(DeviceReader):
    """Reads what the nodes of a cluster sent last. Its set of devices may change."""

    def __init__(self, last: Callable[[], Sequence[NodeReading]]) -> None:
        self._last = last

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return tuple(device.address for device in self.take().devices)

    def take(self) -> DeviceReading:
        """Return the merged reading, with what our processes held when the nodes took theirs."""
        return merge_node_readings(self._last(), time.monotonic())

    def read(self) -> tuple[DeviceSnapshot, ...]:
        reading = self.take()
        if reading.error is not None:
            raise DeviceReadError(reading.error)
        return reading.devices

    def close(self) -> None:
        """Do nothing, since nothing is held."""
