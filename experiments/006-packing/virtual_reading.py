"""The virtual machine as the driver and our own processes tell of it."""

from __future__ import annotations

from collections.abc import Iterator

from virtual_machine import Machine
from worlds import CONTEXT_BYTES

from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot, HeldBytes
from automl.trial import DeviceId


def reading_of(machine: Machine) -> DeviceReading:
    """All devices now."""
    shows = machine.setting.shows_pids
    devices = tuple(
        DeviceSnapshot(
            device,
            "sim",
            total,
            max(0, total - machine.used_bytes(device)),
            processes=tuple(_tenants(machine, device)) if shows else (),
        )
        for device, total in machine.totals.items()
    )
    held = _held(machine)
    return DeviceReading(machine.now, devices, held, held)


def _held(machine: Machine) -> HeldBytes:
    """What torch holds in each worker, its caches included."""
    trials = {
        (device, trial.process): trial.held_bytes
        for device, here in machine.on.items()
        for trial in here.values()
    }
    idle = {
        (d, process): cached for d, ps in machine.kept.items() for process, cached in ps.items()
    }
    return trials | idle


def _tenants(machine: Machine, device: DeviceId) -> Iterator[DeviceProcess]:
    holds = {trial.process: trial.held_bytes for trial in machine.on[device].values()}
    for process, held in (holds | machine.kept[device]).items():
        yield DeviceProcess(process.pid, CONTEXT_BYTES + held, CONTEXT_BYTES + held)
