"""The reader on a real driver, beside real torch. Needs an NVIDIA GPU: `make test-gpu`."""

import pytest
import torch

from automl.devices.device_reading import DeviceReader, DeviceSnapshot
from automl.devices.torch_gpus import torch_gpu_uuids

pytestmark = pytest.mark.gpu

GIB = 1024**3


def snapshot(reader: DeviceReader, uuid: str) -> DeviceSnapshot:
    return {device.address.uuid: device for device in reader.read()}[uuid]


def uuid_of(index: int) -> str:
    """NVML's name of torch's device: `torch_gpu_uuids` is in CUDA's order."""
    return torch_gpu_uuids()[index]


def test_nvml_shows_every_gpu_that_torch_can_use(reader: DeviceReader) -> None:
    assert sorted(d.address.uuid for d in reader.read()) == sorted(torch_gpu_uuids())


def test_a_uuid_means_the_same_gpu_to_nvml_and_torch(reader: DeviceReader) -> None:
    for index, uuid in enumerate(torch_gpu_uuids()):
        device = snapshot(reader, uuid)
        properties = torch.cuda.get_device_properties(index)
        assert device.name == properties.name
        assert uuid.endswith(str(properties.uuid))
        assert abs(device.total_bytes - properties.total_memory) < 0.05 * device.total_bytes


def test_free_memory_falls_by_what_a_tensor_takes_and_rises_again(reader: DeviceReader) -> None:
    uuid = uuid_of(0)
    torch.zeros(1, device="cuda:0")  # the context comes first, and stays
    torch.cuda.synchronize()
    before = snapshot(reader, uuid).free_bytes
    tensor = torch.ones(GIB // 4, device="cuda:0")
    torch.cuda.synchronize()
    during = snapshot(reader, uuid).free_bytes
    assert 0.9 * GIB < before - during < 1.2 * GIB
    del tensor
    torch.cuda.empty_cache()
    assert snapshot(reader, uuid).free_bytes - during > 0.9 * GIB


def test_load_and_tenants_are_read_or_unknown_but_never_fail(reader: DeviceReader) -> None:
    for device in reader.read():
        assert device.utilisation is None or 0 <= device.utilisation <= 1
        assert all(process.pid > 0 for process in device.processes)
