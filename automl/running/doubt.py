"""A GPU on which a process died may be lost: nobody starts there until a reading shows it. Pure.

NVML says a second later that a device is lost. A trial that started there again meanwhile would die
a second time, for which it would have failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from automl.devices.device import DeviceSnapshot, Reading
from automl.trial import DeviceId

IN_DOUBT = "a process died there, and no later reading shows it yet"


def doubting(reading: Reading, died_seconds: Mapping[DeviceId, float]) -> Reading:
    """The reading, in which GPUs where a process has died since it was begun take no trial.

    `died_seconds`: when that was heard of last (`time.monotonic()`).
    """
    doubted = {d for d, at in died_seconds.items() if at >= reading.begun_seconds}
    shown = filter(None, map(reading.find, doubted))
    if all(device.fault is not None for device in shown):
        return reading  # nobody starts there anyway
    devices = (
        replace(d, fault=d.fault or IN_DOUBT) if d.address in doubted else d
        for d in reading.devices
    )
    return replace(reading, devices=tuple(devices))


def drained(reading: Reading) -> frozenset[DeviceId]:
    """The devices that a reading says have failed."""
    return frozenset(d.address for d in reading.devices if has_failed(d))


def has_failed(device: DeviceSnapshot) -> bool:
    """Whether a reading says so, not we who doubt it."""
    return device.fault not in (None, IN_DOUBT)
