"""Compiles the stub of NVML, and drives what it answers through a file that both map.

A change is seen by the next call of any process that runs on the stub, this one included.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from automl.devices.memory_promises import FOLDER_VARIABLE

GIB = 1024**3
SOURCE = Path(__file__).with_name("stub.c")
STATE_VARIABLE = "AUTOML_NVML_STUB"
DEFAULT_MODE, PROHIBITED, EXCLUSIVE_PROCESS = 0, 2, 3
"""Compute modes."""
NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN = 3, 4, 15, 999
NOT_AVAILABLE = 2**64 - 1
"""What NVML answers for a tenant whose memory it does not know."""

FUNCTIONS = (  # in the order of the enum in stub.c
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
)
_NO_PARENT = -1
_MAX_DEVICES = _MAX_TENANTS = 16


class _Tenant(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("graphics", ctypes.c_uint32),
        ("used_bytes", ctypes.c_uint64),
    )


class _Device(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 80),
        ("name", ctypes.c_char * 64),
        ("total_bytes", ctypes.c_uint64),
        ("free_bytes", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("utilisation_percent", ctypes.c_uint32),
        ("mig_enabled", ctypes.c_uint32),
        ("code", ctypes.c_int32),
        ("parent", ctypes.c_int32),
        ("n_tenants", ctypes.c_uint32),
        ("compute_mode", ctypes.c_uint32),
        ("n_ecc_errors", ctypes.c_uint64),
        ("milliwatts", ctypes.c_uint32),
        ("celsius", ctypes.c_uint32),
        ("tenants", _Tenant * _MAX_TENANTS),
    )


class _Function(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int32),
        ("hangs", ctypes.c_int32),
        ("delay_ms", ctypes.c_uint32),
        ("n_calls", ctypes.c_uint32),
    )


class _State(ctypes.Structure):
    _fields_ = (
        ("n_devices", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("functions", _Function * len(FUNCTIONS)),
        ("devices", _Device * _MAX_DEVICES),
    )


def compile_stub(folder: Path, without: Sequence[str] = ()) -> Path:
    """`folder/libnvidia-ml.so.1`, lacking the functions of `without`, as an old driver does.

    It carries no soname, so that loading it by path leaves `dlopen("libnvidia-ml.so.1")` alone.
    Raises FileNotFoundError where there is no C compiler.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler (gcc or cc)")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    flags = ["-Wall", "-Wextra", "-O1", "-shared", "-fPIC"]
    flags += [f"-DWITHOUT_{function}" for function in without]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


class StubGpu:
    """One GPU, or slice of one, as the stub shows it."""

    def __init__(self, state: _State, index: int) -> None:
        self._plain = state.devices[index]
        self.index = index

    @property
    def uuid(self) -> str:
        return str(self._plain.uuid.decode())

    @property
    def total_bytes(self) -> int:
        return int(self._plain.total_bytes)

    @property
    def free_bytes(self) -> int:
        return int(self._plain.free_bytes)

    def use(self, used_bytes: int) -> None:
        """This much of its memory is taken, by whomever."""
        self._plain.used_bytes = used_bytes
        self._plain.free_bytes = self._plain.total_bytes - used_bytes

    def fill(self) -> None:
        self.use(self.total_bytes)

    def empty(self) -> None:
        """Nobody is left on it."""
        self.host([])
        self.use(0)

    def set_mode(self, compute_mode: int) -> None:
        self._plain.compute_mode = compute_mode

    def err(self, n_uncorrected: int) -> None:
        """ECC could not correct so many errors since the driver was loaded."""
        self._plain.n_ecc_errors = n_uncorrected

    def load(self, percent: int) -> None:
        self._plain.utilisation_percent = percent

    def heat(self, watts: float, celsius: int) -> None:
        """It draws so much, and is so hot; before, it tells neither."""
        self._plain.milliwatts, self._plain.celsius = int(1000 * watts), celsius

    def host(
        self, tenants: Sequence[tuple[int, int]], graphics: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Show these tenants, each (pid, bytes); memory in all is set by `use`."""
        both = [(pid, 0, size) for pid, size in tenants] + [
            (pid, 1, size) for pid, size in graphics
        ]
        for i, tenant in enumerate(both):
            self._plain.tenants[i] = _Tenant(*tenant)
        self._plain.n_tenants = len(both)

    def fail(self, code: int) -> None:
        """Every function answers this code for this device; 0: well again."""
        self._plain.code = code


class NvmlStub:
    """What the stub answers, and how to run on it.

    In a subprocess: give it `environment()`. In this process: fixture `loaded_nvml_stub`.
    """

    def __init__(self, library: Path, path: Path) -> None:
        self.library = library
        self.path = path
        if not path.exists():  # else another process drives it, too
            path.write_bytes(bytes(ctypes.sizeof(_State)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._state = _State.from_buffer(self._map)

    @property
    def promises(self) -> Path:
        """Where sweeps on the stub show each other their promises."""
        return self.path.with_name("promises")

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """`base`, changed so that a process started with it finds the stub as its driver.

        CUDA_VISIBLE_DEVICES is taken out: the stub's GPUs are not the machine's.
        """
        changed = {k: v for k, v in base.items() if k != "CUDA_VISIBLE_DEVICES"}
        folders = [str(self.library.parent), base.get("LD_LIBRARY_PATH", "")]
        changed["LD_LIBRARY_PATH"] = os.pathsep.join(folder for folder in folders if folder)
        changed[STATE_VARIABLE] = str(self.path)
        changed[FOLDER_VARIABLE] = str(self.promises)
        return changed

    def gpu(self, uuid: str) -> StubGpu:
        """The one of this UUID. Raises KeyError."""
        gpus = [StubGpu(self._state, index) for index in range(self._state.n_devices)]
        return {gpu.uuid: gpu for gpu in gpus}[uuid]

    def add_gpu(self, uuid: str, name: str = "Stub A100", *, total_bytes: int) -> StubGpu:
        """One more GPU, last in NVML's order, with all of its memory free."""
        return self._add(uuid, name, total_bytes, _NO_PARENT)

    def add_slice(self, parent: StubGpu, uuid: str, *, total_bytes: int) -> StubGpu:
        """Switch MIG on for `parent` and split a slice off it (`MIG-…`)."""
        self._state.devices[parent.index].mig_enabled = 1
        return self._add(uuid, "Stub A100 MIG 1g.5gb", total_bytes, parent.index)

    def enable_mig(self, gpu: StubGpu) -> None:
        """MIG is on, and the GPU has no slice yet."""
        self._state.devices[gpu.index].mig_enabled = 1

    def fail(self, function: str, code: int) -> None:
        """The function answers this code; 0: well again."""
        self._function(function).code = code

    def hang(self, function: str) -> None:
        """Calls of the function do not return until `release`."""
        self._function(function).hangs = 1

    def heal(self) -> None:
        """Every function works again; what the devices show stays."""
        for function in FUNCTIONS:
            self.fail(function, 0)
            self.delay(function, 0)
            self.release(function)

    def release(self, function: str) -> None:
        self._function(function).hangs = 0

    def delay(self, function: str, milliseconds: int) -> None:
        """Each call of the function takes this long."""
        self._function(function).delay_ms = milliseconds

    def n_calls(self, function: str) -> int:
        """How often any process has called the function."""
        return int(self._function(function).n_calls)

    def wait_for_call(self, function: str, n_calls: int = 1, timeout_seconds: float = 30.0) -> None:
        """Return once the function was called this often in all. Raises TimeoutError.

        It looks again and again, since memory shared with C has nothing to wake us by.
        """
        deadline = time.monotonic() + timeout_seconds
        while self.n_calls(function) < n_calls:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{function} was called {self.n_calls(function)} times")
            time.sleep(0.001)

    def _add(self, uuid: str, name: str, total_bytes: int, parent: int) -> StubGpu:
        index = self._state.n_devices
        device = self._state.devices[index]
        device.uuid, device.name, device.parent = uuid.encode(), name.encode(), parent
        device.total_bytes = device.free_bytes = total_bytes
        self._state.n_devices = index + 1
        return StubGpu(self._state, index)

    def _function(self, name: str) -> _Function:
        function: _Function = self._state.functions[FUNCTIONS.index(name)]
        return function
