"""The real py3nvml on a stub of the driver: values, errors, tenants, slices, old drivers."""

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from automl.config import DevicesConfig
from automl.devices.device_reader import open_device_reader
from automl.devices.device_reading import (
    DeviceProcess,
    DeviceReader,
    DeviceReadError,
    DeviceSnapshot,
)
from automl.devices.nvml import NvmlReader
from tests.nvml_stub.fixtures import LARGE, SMALL, compile_or_skip, load
from tests.nvml_stub.stub import (
    DEFAULT_MODE,
    EXCLUSIVE_PROCESS,
    GIB,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    PROHIBITED,
    UNKNOWN,
    NvmlStub,
)
from tests.places import device_id

NVML = DevicesConfig("nvml")
SLICE = "MIG-cccc3333-0000-0000-0000-000000000003"
READ = """
import json, sys
from automl.config import DevicesConfig
from automl.devices.device_reader import open_device_reader
for d in open_device_reader(DevicesConfig("nvml")).read():
    print(json.dumps([d.address.uuid, d.free_bytes]))
"""


def by_uuid(reader: DeviceReader) -> dict[str, DeviceSnapshot]:
    return {device.address.uuid: device for device in reader.read()}


def test_gpus_come_in_nvmls_order_with_what_nvml_says(loaded_nvml_stub: NvmlStub) -> None:
    loaded_nvml_stub.gpu(LARGE).use(10 * GIB)
    loaded_nvml_stub.gpu(LARGE).load(75)
    small, large = open_device_reader(NVML).read()
    assert small == DeviceSnapshot(
        device_id(SMALL), "Stub T4", 8 * GIB, 8 * GIB, utilisation=0.0, nvml_number=0
    )
    assert large == DeviceSnapshot(
        device_id(LARGE), "Stub A10", 24 * GIB, 14 * GIB, utilisation=0.75, nvml_number=1
    )


def test_each_read_asks_anew(loaded_nvml_stub: NvmlStub) -> None:
    reader = open_device_reader(NVML)
    assert by_uuid(reader)[LARGE].free_bytes == 24 * GIB
    loaded_nvml_stub.gpu(LARGE).fill()
    assert by_uuid(reader)[LARGE].free_bytes == 0
    loaded_nvml_stub.gpu(LARGE).empty()
    assert by_uuid(reader)[LARGE].free_bytes == 24 * GIB


def test_tenants_have_names_where_the_machine_knows_them(loaded_nvml_stub: NvmlStub) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    me = psutil.Process()
    loaded_nvml_stub.gpu(SMALL).host(
        [(os.getpid(), 2 * GIB), (gone.pid, NOT_AVAILABLE)], graphics=[(os.getpid(), 3 * GIB)]
    )
    assert by_uuid(open_device_reader(NVML))[SMALL].processes == (
        DeviceProcess(os.getpid(), 3 * GIB, 3 * GIB, me.name(), me.username()),
        DeviceProcess(gone.pid),
    )


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_what_is_advisory_may_fail(loaded_nvml_stub: NvmlStub, code: int) -> None:
    loaded_nvml_stub.gpu(SMALL).host([(1, GIB)])
    for function in ("UtilizationRates", "ComputeRunningProcesses", "GraphicsRunningProcesses"):
        loaded_nvml_stub.fail(f"nvmlDeviceGet{function}", code)
    small = by_uuid(open_device_reader(NVML))[SMALL]
    assert (small.utilisation, small.processes, small.free_bytes) == (None, (), 8 * GIB)


def test_an_old_driver_lacks_functions(
    loaded_nvml_stub: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = (
        "UtilizationRates",
        "ComputeRunningProcesses",
        "GraphicsRunningProcesses",
        "MigMode",
        "ComputeMode",
        "TotalEccErrors",
        "PowerUsage",
        "Temperature",
    )
    functions = [f"nvmlDeviceGet{name}" for name in missing]
    load(compile_or_skip(tmp_path / "old", *functions), monkeypatch)
    small, _ = open_device_reader(NVML).read()
    assert small == DeviceSnapshot(device_id(SMALL), "Stub T4", 8 * GIB, 8 * GIB, nvml_number=0)


def test_a_gpu_without_memory_of_its_own_shares_the_machines(loaded_nvml_stub: NvmlStub) -> None:
    loaded_nvml_stub.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)
    assert by_uuid(open_device_reader(NVML))[SMALL].total_bytes <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("code", "words"), [(UNKNOWN, "Unknown Error"), (77, "the stub was told"), (10, "Timeout")]
)
def test_a_gpu_that_never_answered_fails_the_reading_and_the_next_succeeds(
    loaded_nvml_stub: NvmlStub, code: int, words: str
) -> None:
    reader = open_device_reader(NVML)
    loaded_nvml_stub.gpu(LARGE).fail(code)
    with pytest.raises(DeviceReadError, match=f"{LARGE}: .*{words}") as failure:
        reader.read()
    assert {failure.value}, "it can be hashed"
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)
    loaded_nvml_stub.gpu(LARGE).fail(0)
    n_looked_up = loaded_nvml_stub.n_calls("nvmlDeviceGetHandleByUUID")
    assert len(reader.read()) == 2
    assert loaded_nvml_stub.n_calls("nvmlDeviceGetHandleByUUID") == n_looked_up + 1


@pytest.mark.parametrize(
    ("code", "words", "lost"), [(10, "Timeout", False), (GPU_IS_LOST, "GPU is lost", True)]
)
def test_a_gpu_that_errs_is_drained_and_used_again_when_it_answers_each_said_once(
    loaded_nvml_stub: NvmlStub,
    caplog: pytest.LogCaptureFixture,
    code: int,
    words: str,
    lost: bool,
) -> None:
    reader = open_device_reader(NVML)
    well = by_uuid(reader)[LARGE]
    assert (well.fault, well.lost) == (None, False)
    for _ in range(2):
        loaded_nvml_stub.gpu(LARGE).fail(code)
        for _ in range(2):
            failed = by_uuid(reader)[LARGE]
            assert (failed.fault, failed.lost, failed.free_bytes) == (words, lost, 0)
            assert failed.total_bytes == well.total_bytes
        loaded_nvml_stub.gpu(LARGE).fail(0)
        assert by_uuid(reader)[LARGE] == by_uuid(reader)[LARGE] == well
    said = [f"{LARGE} (Stub A10) takes no new trial: {words}", f"{LARGE} (Stub A10) is used again"]
    assert caplog.messages == said * 2


def test_a_reading_of_gpus_that_all_err_has_failed(loaded_nvml_stub: NvmlStub) -> None:
    reader = open_device_reader(NVML)
    reader.read()
    for uuid in (SMALL, LARGE):
        loaded_nvml_stub.gpu(uuid).fail(10)
    with pytest.raises(DeviceReadError, match=f"{SMALL}: Timeout; {LARGE}: Timeout"):
        reader.read()


def test_a_gpu_whose_memory_erred_since_the_sweep_began_is_drained_until_it_was_reset(
    loaded_nvml_stub: NvmlStub,
) -> None:
    loaded_nvml_stub.gpu(LARGE).err(3)
    reader = open_device_reader(NVML)
    assert by_uuid(reader)[LARGE].fault is None, "long ago"
    loaded_nvml_stub.gpu(LARGE).err(4)
    erred = by_uuid(reader)[LARGE]
    assert "ECC" in str(erred.fault)
    assert erred.lost, "nobody waits for it"
    loaded_nvml_stub.gpu(LARGE).err(0)
    assert by_uuid(reader)[LARGE].fault is None


@pytest.mark.parametrize(
    ("mode", "most"), [(DEFAULT_MODE, None), (EXCLUSIVE_PROCESS, 1), (PROHIBITED, 0)]
)
def test_how_many_processes_a_compute_mode_allows(
    loaded_nvml_stub: NvmlStub, mode: int, most: int | None
) -> None:
    loaded_nvml_stub.gpu(SMALL).set_mode(mode)
    devices = by_uuid(open_device_reader(NVML))
    assert (devices[SMALL].max_processes, devices[LARGE].max_processes) == (most, None)


def test_who_draws_alone_does_not_compute(loaded_nvml_stub: NvmlStub) -> None:
    loaded_nvml_stub.gpu(SMALL).host([(7, GIB), (8, GIB)], graphics=[(8, GIB), (9, GIB)])
    tenants = by_uuid(open_device_reader(NVML))[SMALL].processes
    assert {p.pid: p.computes for p in tenants} == {7: True, 8: True, 9: False}


def test_a_gpu_that_was_lost_before_is_left_out_and_named_once(
    loaded_nvml_stub: NvmlStub, caplog: pytest.LogCaptureFixture
) -> None:
    reader = open_device_reader(NVML)
    loaded_nvml_stub.gpu(LARGE).fail(GPU_IS_LOST)
    assert list(by_uuid(reader)) == [SMALL]
    assert list(by_uuid(reader)) == [SMALL]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        f"{LARGE} (Stub A10) takes no new trial: GPU is lost"
    ]
    loaded_nvml_stub.gpu(SMALL).fail(GPU_IS_LOST)
    with pytest.raises(DeviceReadError, match="every GPU is lost"):
        reader.read()


def test_a_gpu_closed_to_this_container_is_passed_over(
    loaded_nvml_stub: NvmlStub, caplog: pytest.LogCaptureFixture
) -> None:
    loaded_nvml_stub.gpu(SMALL).fail(NO_PERMISSION)
    assert list(by_uuid(open_device_reader(NVML))) == [LARGE]
    assert "GPU 0 of NVML: Insufficient Permissions" in caplog.text


def test_slices_stand_in_for_the_gpu_that_they_split(loaded_nvml_stub: NvmlStub) -> None:
    large = loaded_nvml_stub.gpu(LARGE)
    first = loaded_nvml_stub.add_slice(large, SLICE, total_bytes=5 * GIB)
    loaded_nvml_stub.add_slice(large, SLICE.replace("c", "d"), total_bytes=5 * GIB)
    first.use(GIB)
    devices = by_uuid(open_device_reader(NVML))
    assert list(devices) == [SMALL, SLICE, SLICE.replace("c", "d")]
    assert (devices[SLICE].total_bytes, devices[SLICE].free_bytes) == (5 * GIB, 4 * GIB)
    assert devices[SLICE].utilisation is None


def test_a_gpu_split_into_nothing_cannot_be_used(loaded_nvml_stub: NvmlStub) -> None:
    loaded_nvml_stub.enable_mig(loaded_nvml_stub.gpu(LARGE))
    assert list(by_uuid(open_device_reader(NVML))) == [SMALL]


def test_closing_twice_shuts_nvml_down_once(loaded_nvml_stub: NvmlStub) -> None:
    reader = NvmlReader()
    reader.close()
    reader.close()
    assert loaded_nvml_stub.n_calls("nvmlShutdown") == 1


def test_a_fresh_process_finds_the_library_by_its_name(nvml_stub: NvmlStub) -> None:
    nvml_stub.gpu(SMALL).use(GIB)
    done = read_in_a_process(nvml_stub.environment())
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [SMALL, 7 * GIB],
        [LARGE, 24 * GIB],
    ]


def test_without_a_library_devices_nvml_is_refused_with_the_remedy(tmp_path: Path) -> None:
    # A file that is no library also ends the search for NVIDIA's own.
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    done = read_in_a_process({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert "ConfigError: devices.only=nvml: libnvidia-ml.so.1 was not found" in done.stderr
    assert "Use devices.only=cpu to train" in done.stderr


def read_in_a_process(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=False
    )


def test_power_and_temperature_are_told_where_the_gpu_tells_them(
    loaded_nvml_stub: NvmlStub,
) -> None:
    loaded_nvml_stub.gpu(LARGE).heat(211.4, 64)
    with contextlib.closing(NvmlReader()) as reader:
        small, large = reader.read()
    assert (small.power_watts, small.temperature_celsius) == (None, None)
    assert (large.power_watts, large.temperature_celsius) == (211.4, 64.0)
