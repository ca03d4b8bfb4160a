"""Where a trial runs, and what it asks for: devices, requests, placements."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

LOCAL_NODE = "local"
"""The node of a sweep that runs on one machine."""
HOST_UUID = "host"


class DeviceKind(enum.Enum):
    """What trains: a machine's cores and main memory, or a GPU."""

    CPU = "cpu"
    GPU = "gpu"


class DeviceId(NamedTuple):
    """Address of a device. A tuple, as thousands are looked up for one decision."""

    node: str
    uuid: str
    """`GPU-…` or `MIG-…` as NVML prints it, or `host`."""

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CPU if self.uuid == HOST_UUID else DeviceKind.GPU

    @property
    def on_host(self) -> bool:
        return self.kind is DeviceKind.CPU


HOST = DeviceId(LOCAL_NODE, HOST_UUID)
"""This machine's memory and cores."""

ON_CPU = "cpu"
"""The label of a placement there."""
_OF_NODE = " of "


def host_device_of(node: str) -> DeviceId:
    """The memory and cores of a machine."""
    return DeviceId(node, HOST_UUID)


class ProcessId(NamedTuple):
    """Address of a process."""

    node: str
    pid: int


class RequestSource(enum.Enum):
    """How it is known what memory a trial wants."""

    DECLARED = "declared"
    SEEN = "seen"
    """A trial with the same params was measured."""
    LEARNED = "learned"
    """Its structure, fitted to the trials that were measured."""
    SURVEYED = "surveyed"
    """A survey of the objective, while no trial was measured."""
    ESTIMATED = "estimated"
    """Arithmetic on its params, likewise."""
    UNKNOWN = "unknown"
    PROBED = "probed"
    """Nothing of its own; of trials before it what most of them held: so much is to be free where
    it joins others."""
    RAN_OUT = "ran out"
    """A trial that ran out of memory asks for more than that."""


@dataclass(frozen=True)
class ResourceRequest:
    """What a trial asks for."""

    memory_bytes: int | None
    """On each of its devices. None: not known; then it gets a GPU to itself, and on the host
    counts by cores only."""
    source: RequestSource = RequestSource.DECLARED
    n_devices: int = 1
    """All of one node, and of one kind."""
    alone: bool = False
    """The last attempt of a trial that ran out of memory: the largest device, to itself."""
    undisturbed: bool = False
    """Only while others hold no more of the device than the least that was seen of them."""
    joins_at_bytes: int | None = None
    """Where its size is not known: what has to be free of a GPU for it to join others there, which
    it is promised then. None: it joins nobody."""
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    """Where it can run at all."""

    def __post_init__(self) -> None:
        assert self.memory_bytes is None or self.memory_bytes >= 0, self
        assert self.joins_at_bytes is None or self.memory_bytes is None, self
        assert self.n_devices >= 1, self
        assert self.kinds, self


@dataclass(frozen=True)
class TrainingWork:
    """What a whole trial has to compute, by arithmetic on its params."""

    n_steps: float
    """Optimizer steps."""
    step_flops: float
    """Floating-point operations of one, its share of all evaluations included."""

    def __post_init__(self) -> None:
        assert self.n_steps > 0, self
        assert self.step_flops >= 0, self


UNKNOWN = ResourceRequest(None, RequestSource.UNKNOWN)
"""Nothing is known of what it wants."""


@dataclass(frozen=True)
class DeviceShare:
    """What a placement holds of one device."""

    device: DeviceId
    device_name: str
    reservation_bytes: int


@dataclass(frozen=True)
class Placement:
    """Where an admitted trial runs, and what was reserved for it there: nearly always one share."""

    shares: tuple[DeviceShare, ...]
    exclusive: bool = False
    """The trial has its devices to itself (its memory is unknown, or this is its last attempt)."""
    probing: bool = False
    """Its memory is unknown, and it has joined others: no other such may, until it has settled."""

    def __post_init__(self) -> None:
        assert self.shares, "a placement is somewhere"
        assert len({(d.node, d.kind) for d in self.devices}) == 1, f"{self}: of one node and kind"
        assert len(set(self.devices)) == len(self.shares), f"{self}: a device has one share"

    def shrunk_to(self, most_bytes: Sequence[int]) -> Placement:
        """With at most so much of each device, in their order, beside others; its size is
        known then."""
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
        """For people and the tag `automl.device`: `cpu`, or each GPU's name and UUID; and of which
        node, where there are several."""
        return self.label_at(LOCAL_NODE)

    def label_at(self, here: str) -> str:
        """Likewise, of a sweep beside which others run: its own machine is a node called `here`."""
        node = here if self.node == LOCAL_NODE else self.node
        where = "" if node == LOCAL_NODE else f"{_OF_NODE}{node}"
        if self.on_host:
            return f"{ON_CPU}{where}"
        gpus = ", ".join(f"{share.device_name} {share.device.uuid}" for share in self.shares)
        return f"{gpus}{where}"


def kind_of_label(label: str) -> DeviceKind:
    """What a `Placement.label` says."""
    on_cpu = label == ON_CPU or label.startswith(f"{ON_CPU}{_OF_NODE}")
    return DeviceKind.CPU if on_cpu else DeviceKind.GPU


def node_of_label(label: str) -> str:
    """Likewise."""
    return label.rpartition(_OF_NODE)[2] if _OF_NODE in label else LOCAL_NODE


def label_seen_from(label: str, machine: str) -> str:
    """Likewise, as it reads on the node of that name, whose own devices need no node."""
    return label.removesuffix(f"{_OF_NODE}{machine}")
