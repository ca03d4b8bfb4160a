"""Rows as if they had been timed."""

from __future__ import annotations

from automl.running.gain.measure import HOST_DEVICE, Device, Row
from automl.running.gain.sizes import Size
from automl.training.gain.words import Timing, Way
from automl.trial import LOCAL_NODE, DeviceId

GPU = Device(DeviceId(LOCAL_NODE, "GPU-a"), "a GPU")


def row(
    seconds: float | None,
    way: Way = Way(),  # noqa: B008  frozen
    *,
    size: str = "small",
    device: Device = HOST_DEVICE,
    emulated: bool = False,
    trial: float | None = 100.0,
) -> Row:
    """A step takes so long, and a trial `trial` steps; None: something went wrong."""
    if seconds is None:
        return Row(device, Size(size, {}), Timing(way, trouble="ValueError: odd"))
    whole = None if trial is None else seconds * trial
    return Row(device, Size(size, {}), Timing(way, seconds, whole, emulated=emulated))
