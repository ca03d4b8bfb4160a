"""What is known of a device at one moment, as plain values; no hardware is asked here.

`nvml.py` and `host.py` make snapshots, `reader.py` chooses between them and takes readings at an
interval, `admission/` decides by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar

from automl.errors import AutoMLError
from automl.trial import DeviceId, DeviceKind, ProcessId

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
class Reading:
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
