"""What is said of memory at the end of a sweep."""

from __future__ import annotations

import pytest

from automl.admission.measured_memory import MemoryTally, memory_line
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    UNKNOWN_REQUEST,
    DeviceId,
    MemoryPeakMeasured,
    RequestSource,
    ResourceRequest,
)

ALONE = ResourceRequest(None, RequestSource.RAN_OUT, alone=True)
GROWN = ResourceRequest(15, RequestSource.RAN_OUT)


@pytest.mark.parametrize(
    ("trials", "line"),
    [
        (
            [(ResourceRequest(121), 100)] * 97 + [(GROWN, 14)],
            "memory: 97 of 98 trials within their request (median 1.21 times the peak), "
            "1 ran out and ran again",
        ),
        (
            [(ResourceRequest(9), 10), (ResourceRequest(20), 10), (ResourceRequest(10), 10)],
            "memory: 2 of 3 trials within their request (median 1.00 times the peak)",
        ),
        (
            [(ResourceRequest(20), 10), (UNKNOWN_REQUEST, 70), (ResourceRequest(20), 0)],
            "memory: 1 of 1 trial within its request (median 2.00 times the peak)",
        ),
        (
            [(ALONE, 10), (GROWN, 10)],
            "memory: 0 of 2 trials within their request, 2 ran out and ran again",
        ),
        ([(UNKNOWN_REQUEST, 70)], None),
        ([], None),
    ],
)
def test_how_requests_stood_to_peaks(
    trials: list[tuple[ResourceRequest, int]], line: str | None
) -> None:
    assert memory_line(trials) == line


def reading(at: float, *free: int) -> DeviceReading:
    addresses = [DeviceId(LOCAL_NODE, f"GPU-{n}") for n in range(len(free))]
    devices = [DeviceSnapshot(a, "x", 10, f) for a, f in zip(addresses, free, strict=True)]
    return DeviceReading(at, (*devices, DeviceSnapshot(LOCAL_HOST, "cpu", 10, 10)))


def test_a_tally_has_the_last_request_and_how_full_the_gpus_were() -> None:
    tally = MemoryTally()
    assert tally.line() is None
    for at, free in ((1.0, 0), (2.0, 5), (5.0, 2)):
        tally.read(reading(at, free, 10))
    asked = ResourceRequest(20)
    for trial, size, request in ((0, 8, asked), (0, 10, asked), (0, 7, asked), (1, 30, asked)):
        tally.measured(MemoryPeakMeasured(trial, 0.0, size), request)
    tally.measured(MemoryPeakMeasured(1, 0.0, 15), GROWN)
    # Half of 10 for 1 s and 8 of 10 for 3 s, of one of two GPUs.
    assert tally.line() == (
        "memory: 1 of 2 trials within their request (median 2.00 times the peak), "
        "1 ran out and ran again; GPUs 36 % full over time"
    )


def test_where_no_gpu_trial_was_measured_nothing_is_said() -> None:
    tally = MemoryTally()
    tally.read(DeviceReading(1.0, (DeviceSnapshot(LOCAL_HOST, "cpu", 10, 1),)))
    tally.read(reading(2.0, 5))
    assert tally.line() is None
