"""Rows as if they had been timed."""

from __future__ import annotations

from automl.measure.gain.gain_messages import TrainingTiming, TrainingWay
from automl.running.trials.step_timing import HOST_DEVICE, TimedDevice, TimingRow, TrialSize
from automl.trial import LOCAL_NODE, DeviceId

GPU = TimedDevice(DeviceId(LOCAL_NODE, "GPU-a"), "a GPU")


def row(
    seconds: float | None,
    way: TrainingWay = TrainingWay(),  # noqa: B008  frozen
    *,
    size: str = "small",
    device: TimedDevice = HOST_DEVICE,
    emulated: bool = False,
    trial: float | None = 100.0,
) -> TimingRow:
    """A step takes so long, and a trial `trial` steps; None: something went wrong."""
    if seconds is None:
        return TimingRow(
            device, TrialSize(size, {}), TrainingTiming(way, trouble="ValueError: odd")
        )
    whole = None if trial is None else seconds * trial
    return TimingRow(
        device, TrialSize(size, {}), TrainingTiming(way, seconds, whole, emulated=emulated)
    )
