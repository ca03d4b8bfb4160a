"""What is known of a device at one moment, as plain values; no hardware is asked here.

`nvml.py` and `host.py` make snapshots, `reader.py` chooses between them and takes readings at an
interval, `admission/` decides by them.

The devices of several machines as one list: each reads its own, and addresses name it.
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
"""What our own processes hold of their devices."""
Elsewhere: TypeAlias = "Mapping[tuple[DeviceId, str], int]"
"""Bytes that other sweeps on this machine have promised and NVML does not show, by GPU and by a
word for each promise that stays as long as it lasts."""


class DeviceReadError(AutoMLError):
    """Raised when the devices cannot be read now; a later reading may succeed."""


@dataclass(frozen=True)
class DeviceProcess:
    """Somebody who holds memory of a GPU. Advisory: in a container pids may be the host's."""

    pid: int
    used_bytes: int | None = None
    """The larger of what was read just before and just after the device itself; None: the driver
    does not tell."""
    least_bytes: int | None = None
    """The smaller of the two; 0 for one that was there only once."""
    name: str | None = None
    user: str | None = None
    computes: bool = True
    """False: it only draws, which no compute mode forbids."""
    started_by: int | None = None
    """The process of ours that started it, or whose child did: a rank of a trial; None: nobody's of
    ours, or ours itself."""

    @property
    def owner(self) -> int:
        """The process to which its memory counts."""
        return self.pid if self.started_by is None else self.started_by


@dataclass(frozen=True)
class DeviceSnapshot:
    """One device at one moment."""

    address: DeviceId
    name: str
    total_bytes: int
    free_bytes: int
    utilisation: float | None = None
    """0 to 1: the share of time in which some kernel ran; None: not known, or the host."""
    processes: tuple[DeviceProcess, ...] = ()
    max_processes: int | None = None
    """How many may compute there: none where its compute mode is PROHIBITED, one where that is
    EXCLUSIVE_PROCESS; None: any number."""
    fault: str | None = None
    """Why it takes no new trial, in words; its figures may be old then. None: it is well."""
    lost: bool = False
    """Its fault is one that it will not recover from by itself."""
    closed: str | None = None
    """Why it takes nothing now though it is well, in words; `max_processes` is 0 then, or
    `n_places`. None: it does."""
    nvml_number: int | None = None
    """Of the GPU in NVML's order, as `nvidia-smi` counts."""
    cuda_number: int | None = None
    """Of the GPU in CUDA's order, as torch counts; None: not known."""
    n_places: int | None = None
    """How many trials train there at once, where that is the device's own; None: not known."""
    power_watts: float | None = None
    temperature_celsius: float | None = None

    def __post_init__(self) -> None:
        assert self.total_bytes > 0, self
        assert 0 <= self.free_bytes <= self.total_bytes, self
        assert not self.lost or self.fault is not None, self
        assert self.utilisation is None or 0 <= self.utilisation <= 1, self


@dataclass(frozen=True)
class HostState:
    """The machine beside its GPUs."""

    free_bytes: int
    busy: float | None = None
    """0 to 1: the share of its cores that worked since the reading before; None: not known."""
    n_places: int | None = None
    """How many trials its cores keep busy, whoever holds them; None: it does not say."""


@dataclass(frozen=True)
class DeviceReading:
    """All devices at one moment, and what our own processes held just before and just after.

    A reading that failed has an `error` and no devices.
    """

    begun_seconds: float
    """`time.monotonic()`"""
    devices: tuple[DeviceSnapshot, ...] = ()
    reserved_before: HeldBytes = field(default_factory=dict)
    reserved_after: HeldBytes = field(default_factory=dict)
    promised_elsewhere: Elsewhere = field(default_factory=dict)
    """As it was shown before the devices were asked, or later."""
    hosts: Mapping[str, HostState] = field(default_factory=dict)
    """The machines beside their GPUs, by node; none that has no GPU, or cannot be read."""
    error: str | None = None

    def held_before_on(self, device: DeviceId) -> Mapping[ProcessId, int]:
        """What our own processes held of one device just before."""
        return self._before.get(device, {})

    def held_after_on(self, device: DeviceId) -> Mapping[ProcessId, int]:
        """The same just after."""
        return self._after.get(device, {})

    def promised_elsewhere_on(self, device: DeviceId) -> int:
        """Bytes that other sweeps have promised of a device."""
        return sum(self._elsewhere.get(device, {}).values())

    def find(self, device: DeviceId) -> DeviceSnapshot | None:
        """None: the reading does not show it."""
        return self._found.get(device)

    # Once for each reading: of thousands of devices each is asked about many times.

    def on_node(self, node: str) -> Sequence[DeviceSnapshot]:
        """The devices of one machine."""
        return self._by_node.get(node, ())

    @cached_property
    def kinds(self) -> frozenset[DeviceKind]:
        """Of device, that it shows."""
        return frozenset(device.address.kind for device in self.devices)

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[DeviceSnapshot]]:
        found: dict[str, list[DeviceSnapshot]] = defaultdict(list)
        for device in self.devices:
            found[device.address.node].append(device)
        return found

    @cached_property
    def _found(self) -> Mapping[DeviceId, DeviceSnapshot]:
        return {device.address: device for device in self.devices}

    @cached_property
    def _before(self) -> Mapping[DeviceId, Mapping[ProcessId, int]]:
        return _by_device(self.reserved_before)

    @cached_property
    def _after(self) -> Mapping[DeviceId, Mapping[ProcessId, int]]:
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
        """Of all that it reads, whether they answer now or not."""

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """The devices now, at least one, in a lasting order. Raises DeviceReadError."""

    def close(self) -> None:
        """Give the driver back. Never waits long, even while a read hangs."""


SILENT_SECONDS = 3.0
"""From a node that said nothing for so long on nothing new starts there."""


@dataclass(frozen=True)
class NodeReading:
    """What a node said last of its devices."""

    node: str
    reading: DeviceReading
    """By this machine's clock."""
    heard_seconds: float
    """When it said anything last."""


def address_on_node(reading: DeviceReading, node: str, n_places: int) -> DeviceReading:
    """What a machine read of its own devices, as all speak of them; its cores keep `n_places`
    trials busy, on its host or beside its GPUs."""
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


_NOT_HELD = "not held by this sweep (ray.claim)"


def without_free_memory(reading: DeviceReading, held: Mapping[DeviceId, int]) -> DeviceReading:
    """What a node read, where of each device so many claims are held: of a GPU one is enough, on
    its host train as many trials. All others are there, and closed."""
    n_held = {_key(device): n for device, n in held.items()}
    devices = tuple(_as_held(d, n_held.get(_key(d.address), 0)) for d in reading.devices)
    return replace(reading, devices=devices)


def _as_held(device: DeviceSnapshot, n_held: int) -> DeviceSnapshot:
    if device.address.on_host:
        n_places = min(n_held, n_held if device.n_places is None else device.n_places)
        return replace(device, n_places=n_places, closed=None if n_places else _NOT_HELD)
    return device if n_held else replace(device, max_processes=0, closed=_NOT_HELD)


def _key(device: DeviceId) -> tuple[str, str]:
    return device.node, bare_uuid(device.uuid)


def merge_node_readings(readings: Sequence[NodeReading], now_seconds: float) -> DeviceReading:
    """One reading, as old as the oldest of those nodes that are heard."""
    heard = [r for r in readings if now_seconds - r.heard_seconds <= SILENT_SECONDS]
    good = [r for r in readings if r.reading.error is None]
    devices = tuple(
        device if one in heard else _silenced(device, now_seconds - one.heard_seconds)
        for one in good
        for device in one.reading.devices
    )
    begun = min((r.reading.begun_seconds for r in heard if r in good), default=now_seconds)
    if not devices:
        errors = [f"{r.node}: {r.reading.error}" for r in readings if r.reading.error]
        return DeviceReading(begun, error="; ".join(errors) or "no node is there")
    return DeviceReading(
        begun,
        devices,
        {where: n for r in good for where, n in r.reading.reserved_before.items()},
        {where: n for r in good for where, n in r.reading.reserved_after.items()},
        hosts={node: host for r in good for node, host in r.reading.hosts.items()},
    )


def _silenced(device: DeviceSnapshot, seconds: float) -> DeviceSnapshot:
    fault = device.fault or f"node {device.address.node} said nothing for {seconds:.0f} s"
    return replace(device, fault=fault)


class NodesReader(DeviceReader):
    """Reads what the nodes said last. Which devices there are may change."""

    def __init__(self, last: Callable[[], Sequence[NodeReading]]) -> None:
        self._last = last

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return tuple(device.address for device in self.take().devices)

    def take(self) -> DeviceReading:
        """As `take_reading`, with what processes of ours held then."""
        return merge_node_readings(self._last(), time.monotonic())

    def read(self) -> tuple[DeviceSnapshot, ...]:
        reading = self.take()
        if reading.error is not None:
            raise DeviceReadError(reading.error)
        return reading.devices

    def close(self) -> None:
        """Nothing is held."""
