"""The devices of several machines as one list: each reads its own, and addresses name it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from automl.devices.device import DeviceReader, DeviceReadError, DeviceSnapshot, Reading
from automl.devices.selection import bare
from automl.trial import LOCAL_NODE, DeviceId

SILENT_SECONDS = 3.0
"""From a node that said nothing for so long on nothing new starts there."""


@dataclass(frozen=True)
class NodeReading:
    """What a node said last of its devices."""

    node: str
    reading: Reading
    """By this machine's clock."""
    heard_seconds: float
    """When it said anything last."""


def of_node(reading: Reading, node: str, n_places: int) -> Reading:
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


def as_held(reading: Reading, held: Mapping[DeviceId, int]) -> Reading:
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
    return device.node, bare(device.uuid)


def merged(readings: Sequence[NodeReading], now_seconds: float) -> Reading:
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
        return Reading(begun, error="; ".join(errors) or "no node is there")
    return Reading(
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

    def take(self) -> Reading:
        """As `take_reading`, with what processes of ours held then."""
        return merged(self._last(), time.monotonic())

    def read(self) -> tuple[DeviceSnapshot, ...]:
        reading = self.take()
        if reading.error is not None:
            raise DeviceReadError(reading.error)
        return reading.devices

    def close(self) -> None:
        """Nothing is held."""
