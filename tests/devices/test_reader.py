"""Which devices a sweep gets, and the thread that reads them."""

import contextlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from automl.config import DevicesConfig
from automl.devices.device_reader import ReaderThread, open_device_reader, take_reading
from automl.devices.device_reading import DeviceReader, DeviceReading, HeldBytes
from automl.devices.host import HostReader
from automl.errors import ConfigError
from automl.trial import HOST_UUID, LOCAL_HOST, LOCAL_NODE
from tests.nvml_stub.fixtures import CUDA_ORDER, LARGE, SMALL
from tests.nvml_stub.stub import UNKNOWN, NvmlStub
from tests.places import device_id, process_id

MEMORY = "nvmlDeviceGetMemoryInfo"
SLICE = "MIG-cccc3333-0000-0000-0000-000000000003"
NOW_SECONDS = 0.001
"""An interval that keeps no test waiting."""
WAIT_SECONDS = 30.0


def nothing() -> HeldBytes:
    return {}


def config(kind: str, *only: str) -> DevicesConfig:
    return DevicesConfig([{"host": "cpu"}.get(kind, kind), *only])


def uuids(reader: DeviceReader) -> list[str]:
    return [device.address.uuid for device in reader.read()]


@pytest.fixture
def torch_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give child processes a torch that has these GPUs, by (name, UUID without its beginning)."""

    def see(*gpus: tuple[str, str]) -> None:
        (tmp_path / "torch.py").write_text(
            "from types import SimpleNamespace\n"
            f"gpus = {gpus!r}\n"
            "cuda = SimpleNamespace(\n"
            "    is_available=lambda: bool(gpus),\n"
            "    device_count=lambda: len(gpus),\n"
            "    get_device_properties=lambda i: SimpleNamespace(\n"
            "        name=gpus[i][0], uuid=gpus[i][1]\n"
            "    ),\n"
            ")\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return see


# --- devices.only=cpu -----------------------------------------------------------------------------


def test_host_is_the_machine_even_where_there_are_gpus(loaded_nvml_stub: NvmlStub) -> None:
    assert uuids(open_device_reader(config("host"))) == [HOST_UUID]
    assert loaded_nvml_stub.n_calls("nvmlInit_v2") == 0


def test_only_of_a_gpu_cannot_be_met_by_the_host() -> None:
    with pytest.raises(ConfigError, match=r"devices.only=\['cpu', 'GPU-8f'\]: cpu stands alone"):
        config("host", "GPU-8f")


def test_the_machine_is_read_beside_gpus_once(loaded_nvml_stub: NvmlStub) -> None:
    both = open_device_reader(config("nvml"), beside_gpus=True)
    assert uuids(both) == [SMALL, LARGE, HOST_UUID]
    reading = take_reading(both, dict)
    assert [d.address.uuid for d in reading.devices] == [SMALL, LARGE, HOST_UUID]
    assert reading.hosts.keys() == {LOCAL_NODE}
    both.close()
    assert uuids(open_device_reader(config("host"), beside_gpus=True)) == [HOST_UUID]


# --- devices.only=nvml ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "only", "expected"),
    [
        (None, (), [SMALL, LARGE]),
        (None, ("GPU-aaaa",), [LARGE]),
        (LARGE, (), [LARGE]),
        ("GPU-aaaa", (), [LARGE]),
        ("GPU-aaaa,GPU-bbbb", ("GPU-bbbb",), [SMALL]),
        ("1,0", (), [SMALL, LARGE]),
    ],
)
def test_nvml_gives_what_is_shown_and_wanted(
    loaded_nvml_stub: NvmlStub,
    monkeypatch: pytest.MonkeyPatch,
    setting: str | None,
    only: tuple[str, ...],
    expected: list[str],
) -> None:
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert uuids(open_device_reader(config("nvml", *only))) == expected


def test_of_a_node_a_slurm_job_takes_its_own(
    loaded_nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = uuids(open_device_reader(config("nvml")))
    monkeypatch.setenv("SLURM_JOB_GPUS", "1")
    assert uuids(open_device_reader(config("nvml"))) == every[1:]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", every[0])
    assert uuids(open_device_reader(config("nvml"))) == every[:1], "the more exact word counts"


@pytest.mark.parametrize(
    ("setting", "only", "words"),
    [
        (None, ("GPU-1234",), ["devices.only=GPU-1234", SMALL, LARGE]),
        (LARGE, (SMALL,), [f"devices.only={SMALL}", f"there is {LARGE} (number 0)."]),
        ("", (), ["CUDA_VISIBLE_DEVICES=''", "hides every GPU", "Unset it", SMALL, LARGE]),
        ("-1", (), ["CUDA_VISIBLE_DEVICES='-1'", "hides every GPU"]),
        ("GPU-1234", (), ["CUDA_VISIBLE_DEVICES='GPU-1234'", SMALL, LARGE]),
        ("0", (), ["CUDA_VISIBLE_DEVICES=0", "CUDA's order", "devices.only=auto", SMALL, LARGE]),
    ],
)
def test_nvml_refuses_what_leaves_no_gpu_and_closes_the_driver(
    loaded_nvml_stub: NvmlStub,
    monkeypatch: pytest.MonkeyPatch,
    setting: str | None,
    only: tuple[str, ...],
    words: list[str],
) -> None:
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    with pytest.raises(ConfigError) as refusal:
        open_device_reader(config("nvml", *only))
    assert [word for word in words if word not in str(refusal.value)] == []
    assert loaded_nvml_stub.n_calls("nvmlShutdown") == 1


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("nvmlInit_v2", 9, "installed but not loaded"),
        ("nvmlInit_v2", 18, "restart the machine"),
        ("nvmlInit_v2", UNKNOWN, "NVML does not start: Unknown Error"),
        ("nvmlDeviceGetCount_v2", UNKNOWN, "Unknown Error"),
        ("nvmlDeviceGetHandleByIndex_v2", 15, "GPU 0 of NVML: GPU is lost; GPU 1"),
    ],
)
def test_a_driver_that_fails_is_refused_under_nvml_and_passed_over_aloud_under_auto(
    loaded_nvml_stub: NvmlStub,
    caplog: pytest.LogCaptureFixture,
    function: str,
    code: int,
    words: str,
) -> None:
    loaded_nvml_stub.fail(function, code)
    with pytest.raises(ConfigError, match=f"devices.only=nvml: .*{words}.*devices.only=cpu"):
        open_device_reader(config("nvml"))
    assert uuids(open_device_reader(config("auto"))) == [HOST_UUID]
    (warning,) = caplog.messages
    assert warning.startswith("devices.only=auto: no GPU is used: ")
    assert words in warning


def test_nvml_without_a_gpu_is_refused(loaded_nvml_stub: NvmlStub) -> None:
    path = loaded_nvml_stub.path  # where the driver reads its state: no GPU now
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    with pytest.raises(ConfigError, match=r"devices.only=nvml: NVML shows no GPU\."):
        open_device_reader(config("nvml"))
    assert uuids(open_device_reader(config("auto"))) == [HOST_UUID]


# --- devices.only=auto ----------------------------------------------------------------------------


def test_auto_gives_the_gpus_that_torch_can_use_too(
    loaded_nvml_stub: NvmlStub, torch_sees: Callable[..., None]
) -> None:
    torch_sees(*(("Stub", uuid.removeprefix("GPU-")) for uuid in CUDA_ORDER))
    assert uuids(open_device_reader(config("auto"))) == [SMALL, LARGE]
    assert uuids(open_device_reader(config("auto", "GPU-aaaa"))) == [LARGE]
    torch_sees(("Stub A10", LARGE.removeprefix("GPU-")))
    assert uuids(open_device_reader(config("auto"))) == [LARGE]
    with pytest.raises(ConfigError, match=f"devices.only=GPU-bbbb: .* there is {LARGE}"):
        open_device_reader(config("auto", "GPU-bbbb"))


def test_auto_gives_the_slice_that_torch_can_use(
    loaded_nvml_stub: NvmlStub, torch_sees: Callable[..., None]
) -> None:
    loaded_nvml_stub.add_slice(loaded_nvml_stub.gpu(LARGE), SLICE, total_bytes=2**30)
    torch_sees(("Stub A10 MIG 1g.5gb", SLICE.removeprefix("MIG-")))
    assert uuids(open_device_reader(config("auto"))) == [SLICE]


def test_auto_leaves_the_numbers_of_cuda_visible_devices_to_torch(
    loaded_nvml_stub: NvmlStub,
    torch_sees: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    torch_sees(("Stub A10", CUDA_ORDER[0].removeprefix("GPU-")))
    assert uuids(open_device_reader(config("auto"))) == [LARGE]


def test_auto_trains_on_the_cpu_where_torch_can_use_no_gpu_and_says_so(
    loaded_nvml_stub: NvmlStub,
    torch_sees: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch_sees()
    assert uuids(open_device_reader(config("auto"))) == [HOST_UUID]
    assert "torch can use none of the GPUs" in caplog.text
    assert f"{LARGE} Stub A10" in caplog.text
    assert loaded_nvml_stub.n_calls("nvmlShutdown") == 1


@pytest.mark.parametrize("setting", ["", "-1"])
def test_auto_asks_nobody_where_every_gpu_is_hidden(
    loaded_nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert uuids(open_device_reader(config("auto"))) == [HOST_UUID]
    assert loaded_nvml_stub.n_calls("nvmlInit_v2") == 0


# --- the thread -----------------------------------------------------------------------------------


@pytest.fixture
def readings() -> "queue.Queue[DeviceReading]":
    return queue.Queue()


def test_readings_come_until_the_thread_is_stopped(readings: "queue.Queue[DeviceReading]") -> None:
    thread = ReaderThread(HostReader(), NOW_SECONDS, nothing, readings.put)
    thread.start()
    first, second = (readings.get(timeout=WAIT_SECONDS) for _ in range(2))
    assert thread.stop(WAIT_SECONDS)
    assert first.begun_seconds <= second.begun_seconds
    assert [device.address for device in first.devices] == [LOCAL_HOST]
    assert first.error is None


def test_what_we_hold_is_read_before_and_after() -> None:
    sizes = iter([100, 70])
    reading = take_reading(HostReader(), lambda: {(LOCAL_HOST, process_id(7)): next(sizes)})
    assert reading.reserved_before == {(LOCAL_HOST, process_id(7)): 100}
    assert reading.reserved_after == {(LOCAL_HOST, process_id(7)): 70}


def test_a_failing_driver_gives_readings_with_the_error_until_it_is_well(
    loaded_nvml_stub: NvmlStub, readings: "queue.Queue[DeviceReading]"
) -> None:
    reader = open_device_reader(config("nvml"))
    loaded_nvml_stub.fail(MEMORY, UNKNOWN)
    thread = ReaderThread(reader, NOW_SECONDS, nothing, readings.put)
    thread.start()
    failed = readings.get(timeout=WAIT_SECONDS)
    assert failed.devices == ()
    assert failed.error == f"{SMALL}: Unknown Error"
    loaded_nvml_stub.fail(MEMORY, 0)
    while readings.get(timeout=WAIT_SECONDS).error is not None:
        pass
    assert thread.stop(WAIT_SECONDS)


def test_a_reader_with_a_flaw_does_not_end_the_thread_unseen() -> None:
    class Flawed(HostReader):
        def read(self) -> tuple[()]:
            raise ZeroDivisionError("a flaw")

    assert take_reading(Flawed(), nothing).error == "ZeroDivisionError: a flaw"


def test_a_hanging_driver_gives_no_reading_and_holds_up_nobody(
    loaded_nvml_stub: NvmlStub, readings: "queue.Queue[DeviceReading]"
) -> None:
    reader = open_device_reader(config("nvml"))
    thread = ReaderThread(reader, NOW_SECONDS, nothing, readings.put)
    loaded_nvml_stub.hang(MEMORY)
    thread.start()
    loaded_nvml_stub.wait_for_call(MEMORY)
    assert not thread.stop(timeout_seconds=0), "it hangs"
    reader.close()
    assert loaded_nvml_stub.n_calls("nvmlShutdown") == 0, "closing would hang as well"
    loaded_nvml_stub.release(MEMORY)
    assert thread.stop(WAIT_SECONDS)
    assert readings.empty(), "nobody listens to a reading that ends after the stop"


def test_a_driver_that_hung_goes_on_with_fresh_readings(
    loaded_nvml_stub: NvmlStub, readings: "queue.Queue[DeviceReading]"
) -> None:
    thread = ReaderThread(open_device_reader(config("nvml")), NOW_SECONDS, nothing, readings.put)
    loaded_nvml_stub.hang(MEMORY)
    thread.start()
    loaded_nvml_stub.wait_for_call(MEMORY)
    assert readings.empty()
    loaded_nvml_stub.gpu(LARGE).fill()
    loaded_nvml_stub.release(MEMORY)
    reading = readings.get(timeout=WAIT_SECONDS)
    assert [device.free_bytes for device in reading.devices][1] == 0
    assert thread.stop(WAIT_SECONDS)


def test_a_process_that_one_of_ours_started_is_said_to_be_its(loaded_nvml_stub: NvmlStub) -> None:
    """This process is ours here, and has a child and a grandchild on a GPU."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    waits = "import os; print(os.getpid(), os.getppid(), flush=True); input()"
    command = [sys.executable, "-c", script, waits]
    with (
        subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as child,
        contextlib.closing(open_device_reader(config("nvml", LARGE))) as reader,
    ):
        assert child.stdout is not None
        grandchild, pid = map(int, child.stdout.readline().split())
        mine, stranger = os.getpid(), os.getppid()
        loaded_nvml_stub.gpu(LARGE).host([(p, 1) for p in (mine, pid, grandchild, stranger)])
        reading = take_reading(reader, lambda: {(device_id(LARGE), process_id(mine)): 1})
        child.communicate("\n")
    (device,) = reading.devices
    assert [p.started_by for p in device.processes] == [None, mine, mine, None]


# --- devices.only by number ---


def test_under_auto_a_number_counts_as_torch_does(
    loaded_nvml_stub: NvmlStub, torch_sees: Callable[..., None]
) -> None:
    """NVML has them the other way round."""
    torch_sees(*[("Stub", uuid.removeprefix("GPU-")) for uuid in CUDA_ORDER])
    with contextlib.closing(open_device_reader(config("auto", "0"))) as reader:
        (device,) = reader.read()
    assert device.address == device_id(LARGE)
    assert (device.cuda_number, device.nvml_number) == (0, 1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", SMALL),
        ("CUDA_VISIBLE_DEVICES", f"{LARGE},{SMALL}", LARGE),
    ],
)
def test_without_torch_a_number_counts_where_the_order_is_known(
    loaded_nvml_stub: NvmlStub,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    expected: str,
) -> None:
    monkeypatch.setenv(name, value)
    with contextlib.closing(open_device_reader(config("nvml", "0"))) as reader:
        assert uuids(reader) == [expected]


def test_under_nvml_torch_is_asked_for_a_number_alone(
    loaded_nvml_stub: NvmlStub, torch_sees: Callable[..., None]
) -> None:
    torch_sees(*[("Stub", uuid.removeprefix("GPU-")) for uuid in CUDA_ORDER])
    with contextlib.closing(open_device_reader(config("nvml", "0"))) as reader:
        assert uuids(reader) == [LARGE]
    with contextlib.closing(open_device_reader(config("nvml"))) as reader:
        assert [device.cuda_number for device in reader.read()] == [None, None]


def test_one_name_needs_no_list() -> None:
    assert DevicesConfig(0).names == ["0"]
    assert DevicesConfig([1, "GPU-a"]).names == ["1", "GPU-a"]
    with pytest.raises(ConfigError, match=r"devices.only='': "):
        open_device_reader(DevicesConfig([None]))
