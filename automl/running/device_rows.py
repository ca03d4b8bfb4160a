"""What a sweep, or one that only looks, shows of each device: whose its memory is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automl.admission.account import DeviceAccount
from automl.devices.device import DeviceProcess, Reading
from automl.trial import LOCAL_NODE


@dataclass(frozen=True)
class DeviceRow:
    """A device. Memory is ours, reserved, foreign or free; what a device does not tell is None."""

    uuid: str
    """`host`: the machine."""
    name: str
    total_bytes: int
    ours_bytes: int = 0
    """Held by processes of the sweep."""
    reserved_bytes: int = 0
    """Promised, and not taken yet."""
    foreign_bytes: int = 0
    load: float | None = None
    """0 to 1."""
    power_watts: float | None = None
    temperature_celsius: float | None = None
    nvml_number: int | None = None
    cuda_number: int | None = None
    fault: str | None = None
    pids: tuple[int, ...] = ()
    """Of those processes there."""
    node: str = LOCAL_NODE

    @property
    def free_bytes(self) -> int:
        """Neither taken nor promised."""
        taken = self.ours_bytes + self.reserved_bytes + self.foreign_bytes
        return max(0, self.total_bytes - taken)


def device_row(a: DeviceAccount, reading: Reading) -> DeviceRow:
    """As admission adds it up."""
    device = a.device
    elsewhere = reading.promised_elsewhere_on(device.address)
    taken = device.total_bytes - device.free_bytes
    foreign = min(taken, max(0, a.foreign_bytes - elsewhere))
    ours = taken - foreign
    own = {process.pid for process in a.own_processes}
    return DeviceRow(
        uuid=device.address.uuid,
        node=device.address.node,
        name=device.name,
        total_bytes=device.total_bytes,
        ours_bytes=ours,
        reserved_bytes=max(0, a.hold_bytes + a.pending_bytes + elsewhere - ours),
        foreign_bytes=foreign,
        load=device.utilisation,
        power_watts=device.power_watts,
        temperature_celsius=device.temperature_celsius,
        nvml_number=device.nvml_number,
        cuda_number=device.cuda_number,
        fault=device.fault,
        pids=tuple(p.pid for p in device.processes if p.owner in own),
    )


def with_sweeps(seen: DeviceRow, rows: Sequence[DeviceRow]) -> DeviceRow:
    """A device as one sees it that runs no trials, with what the sweeps there say is theirs."""
    here = [row for row in rows if (row.node, row.uuid) == (seen.node, seen.uuid)]
    taken = seen.ours_bytes + seen.foreign_bytes
    ours = min(taken, sum(row.ours_bytes for row in here))
    reserved = max([seen.reserved_bytes, *(row.reserved_bytes for row in here)])
    return replace(
        seen,
        ours_bytes=ours,
        foreign_bytes=taken - ours,
        reserved_bytes=reserved,
        pids=tuple(pid for row in here for pid in row.pids),
    )


def others(processes: Sequence[DeviceProcess], row: DeviceRow) -> list[DeviceProcess]:
    """Who is on the device besides the sweeps, those who hold most first."""
    found = [p for p in processes if p.pid not in row.pids]
    return sorted(found, key=lambda p: p.used_bytes or 0, reverse=True)
