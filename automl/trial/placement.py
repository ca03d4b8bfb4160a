"""Defines where a trial runs and what it asks for: devices, requests, placements.

These are plain values. Reading devices is the job of `automl/devices/`, and deciding on placements
that of `automl/admission/`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

LOCAL_NODE = "local"
"""Name of the node of a sweep that runs on one machine."""
HOST_UUID = "host"


class DeviceKind(enum.Enum):
    """What a trial trains on: a machine's cores and main memory, or a GPU."""

    CPU = "cpu"
    GPU = "gpu"


class DeviceId(NamedTuple):
    """Address of a device. A tuple, as thousands are looked up for one decision."""

    node: str
    uuid: str
    """The UUID `GPU-…` or `MIG-…` as NVML prints it, or `host`."""

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CPU if self.uuid == HOST_UUID else DeviceKind.GPU

    @property
    def on_host(self) -> bool:
        return self.kind is DeviceKind.CPU


LOCAL_HOST = DeviceId(LOCAL_NODE, HOST_UUID)
"""The device that is this machine's memory and cores."""

CPU_LABEL = "cpu"
"""Label of a placement on a machine's cores."""
_OF_NODE = " of "


def host_device_of(node: str) -> DeviceId:
    """Return the device that is a machine's memory and cores."""
    return DeviceId(node, HOST_UUID)


class ProcessId(NamedTuple):
    """Address of a process: its node and its pid."""

    node: str
    pid: int


class RequestSource(enum.Enum):
    """Tells how the memory request of a trial is known."""

    DECLARED = "declared"
    """The user declared the memory in the config."""
    SEEN = "seen"
    """A trial with the same params was measured."""
    LEARNED = "learned"
    """The trial's structure was fitted to the trials that were measured."""
    SURVEYED = "surveyed"
    """The objective was surveyed, and no trial was measured yet."""
    ESTIMATED = "estimated"
    """The params were evaluated by arithmetic, and no trial was measured yet."""
    UNKNOWN = "unknown"
    PROBED = "probed"
    """Nothing is known of the trial itself. It joins others where as much memory is free as most
    earlier trials held."""
    RAN_OUT = "ran out"
    """The trial ran out of memory, and asks for more than it had."""


@dataclass(frozen=True)
class ResourceRequest:
    """The devices and the memory that a trial asks for."""

    memory_bytes: int | None
    """Memory on each of the trial's devices. None: not known; the trial then gets a GPU to itself,
    and on the host it counts by cores only."""
    source: RequestSource = RequestSource.DECLARED
    n_devices: int = 1
    """Number of devices, all of one node and of one kind."""
    alone: bool = False
    """Whether this is the last attempt of a trial that ran out of memory: it gets the largest
    device to itself."""
    undisturbed: bool = False
    """Whether the trial may start only while other processes hold no more of the device than the
    least that they were seen to hold."""
    joins_at_bytes: int | None = None
    """Free memory of a GPU at which a trial of unknown size joins others there; this much is then
    reserved for it. None: the trial joins no others."""
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    """Kinds of device on which the trial can run."""

    def __post_init__(self) -> None:
        assert self.memory_bytes is None or self.memory_bytes >= 0, self
        assert self.joins_at_bytes is None or self.memory_bytes is None, self
        assert self.n_devices >= 1, self
        assert self.kinds, self


@dataclass(frozen=True)
class TrainingWork:
    """What a whole trial has to compute, by arithmetic on its params."""

    n_steps: float
    """Number of optimizer steps of the whole trial."""
    step_flops: float
    """Floating-point operations of one step, with its share of all evaluations."""

    def __post_init__(self) -> None:
        assert self.n_steps > 0, self
        assert self.step_flops >= 0, self


UNKNOWN_REQUEST = ResourceRequest(None, RequestSource.UNKNOWN)
"""Request of a trial whose needs are not known."""


@dataclass(frozen=True)
class DeviceShare:
    """The part of one device that a placement reserves."""

    device: DeviceId
    device_name: str
    reservation_bytes: int


@dataclass(frozen=True)
class Placement:
    """Where an admitted trial runs, and what is reserved for it there; nearly always one share."""

    shares: tuple[DeviceShare, ...]
    exclusive: bool = False
    """Whether the trial has its devices to itself: of unknown memory, or at its last attempt."""
    probing: bool = False
    """Whether the trial has joined others although its memory is unknown. No second such trial may
    join them until this one has settled."""

    def __post_init__(self) -> None:
        assert self.shares, "a placement is somewhere"
        assert len({(d.node, d.kind) for d in self.devices}) == 1, f"{self}: of one node and kind"
        assert len(set(self.devices)) == len(self.shares), f"{self}: a device has one share"

    def shrunk_to(self, most_bytes: Sequence[int]) -> Placement:
        """Return the placement with at most `most_bytes` on each device, in the order of the
        devices.

        The trial's size is known by then, so it no longer excludes others.
        """
        most = zip(self.shares, most_bytes, strict=True)
        sizes = [min(share.reservation_bytes, size) for share, size in most]
        shares = (replace(s, reservation_bytes=n) for s, n in zip(self.shares, sizes, strict=True))
        return Placement(tuple(shares))

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        return tuple(share.device for share in self.shares)

    @property
    def node(self) -> str:
        return self.shares[0].device.node

    @property
    def kind(self) -> DeviceKind:
        return self.shares[0].device.kind

    @property
    def on_host(self) -> bool:
        return self.shares[0].device.on_host

    @property
    def label(self) -> str:
        """Return the text for people and for the tag `automl.device`: `cpu`, or each GPU's name and
        UUID.

        Where there are several nodes the text names the node, too.
        """
        return self.label_at(LOCAL_NODE)

    def label_at(self, here: str) -> str:
        """Return the label in a shared study, where this sweep's own machine is the node `here`."""
        node = here if self.node == LOCAL_NODE else self.node
        where = "" if node == LOCAL_NODE else f"{_OF_NODE}{node}"
        if self.on_host:
            return f"{CPU_LABEL}{where}"
        gpus = ", ".join(f"{share.device_name} {share.device.uuid}" for share in self.shares)
        return f"{gpus}{where}"


OUTSIDE_DEVICE = "outside"
"""The device of a trial that an experiment outside of any sweep runs."""
IMPORTED_DEVICE = "Optuna"
"""The device of a trial that ended in a study of Optuna's, with which another began."""


def kind_of_label(label: str) -> DeviceKind:
    """Return the kind of device that a `Placement.label` names."""
    on_cpu = label == CPU_LABEL or label.startswith(f"{CPU_LABEL}{_OF_NODE}")
    return DeviceKind.CPU if on_cpu else DeviceKind.GPU


def node_of_label(label: str) -> str:
    """Return the node that a `Placement.label` names."""
    return label.rpartition(_OF_NODE)[2] if _OF_NODE in label else LOCAL_NODE


def label_seen_from(label: str, machine: str) -> str:
    """Return a `Placement.label` as it reads on the node `machine`, which does not name itself."""
    return label.removesuffix(f"{_OF_NODE}{machine}")
