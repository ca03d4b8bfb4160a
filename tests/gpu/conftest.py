"""The GPUs of this machine as a sweep finds them. They are there, or these tests fail."""

import contextlib
from collections.abc import Iterator

import pytest

from automl.config import DevicesConfig
from automl.devices.device_reader import open_device_reader
from automl.devices.device_reading import DeviceReader
from automl.trial import LOCAL_HOST, DeviceShare, Placement


@pytest.fixture
def reader() -> Iterator[DeviceReader]:
    with contextlib.closing(open_device_reader(DevicesConfig())) as reader:
        if [device.address for device in reader.read()] == [LOCAL_HOST]:
            pytest.fail("there is no GPU that both NVML and torch can use")
        yield reader


@pytest.fixture
def gpu(reader: DeviceReader) -> Placement:
    """A place on the first GPU."""
    device = reader.read()[0]
    return Placement((DeviceShare(device.address, device.name, reservation_bytes=0),))
