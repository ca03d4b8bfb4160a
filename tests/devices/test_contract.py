"""What every reader of devices keeps to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from automl.devices.device_reading import DeviceReader
from automl.devices.host import HostReader
from automl.devices.nvml import NvmlReader


@pytest.fixture(params=["host", "nvml"])
def reader(request: pytest.FixtureRequest) -> Iterator[DeviceReader]:
    if request.param == "nvml":
        request.getfixturevalue("loaded_nvml_stub")
    reader = HostReader() if request.param == "host" else NvmlReader()
    yield reader
    reader.close()


def test_devices_have_lasting_names_and_order(reader: DeviceReader) -> None:
    first, second = reader.read(), reader.read()
    names = [(device.address, device.name, device.total_bytes) for device in first]
    assert names
    assert names == [(device.address, device.name, device.total_bytes) for device in second]
    assert len({device.address for device in first}) == len(first)
    assert reader.addresses == tuple(device.address for device in first)


def test_figures_make_sense(reader: DeviceReader) -> None:
    for device in reader.read():
        assert 0 <= device.free_bytes <= device.total_bytes
        assert device.utilisation is None or 0 <= device.utilisation <= 1


def test_it_is_read_in_another_thread_than_it_was_opened_in(reader: DeviceReader) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(reader.read).result()) == len(reader.read())


def test_closing_twice_is_allowed(reader: DeviceReader) -> None:
    reader.close()
    reader.close()
