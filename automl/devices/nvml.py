"""GPUs as NVIDIA's driver sees them, through py3nvml; only this module knows of it.

What py3nvml 0.2.7 does oddly ends here: UUIDs must be bytes, its errors can be neither hashed nor
pickled (they become our own), handles are never equal (devices are known by UUID), and it has no
calls for MIG (its function table is used directly for the three that list slices).

Not covered: the order in which CUDA counts (`cuda_order.py` asks torch); choosing (`reader.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any

from py3nvml import py3nvml

from automl.devices.device import DeviceProcess, DeviceReader, DeviceReadError, DeviceSnapshot
from automl.devices.host import host_memory
from automl.devices.processes import name_and_user
from automl.errors import AutoMLError
from automl.trial import LOCAL_NODE, DeviceId

log = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0
"""How long closing waits for a read that hangs."""
_MIG_ENABLED = 1  # NVML_DEVICE_MIG_ENABLE
_LOST = (py3nvml.NVML_ERROR_GPU_IS_LOST, py3nvml.NVML_ERROR_RESET_REQUIRED)
_MISSING = {
    py3nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found: no NVIDIA driver is installed, or a container was "
        "started without it"
    ),
    py3nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    py3nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was updated since it was loaded: restart the machine"
    ),
}


class NvmlMissingError(AutoMLError):
    """Raised when NVML cannot be used at all."""


class NoNvmlLibraryError(NvmlMissingError):
    """Raised when the machine has no NVIDIA driver, which is no trouble where none is asked for."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a slice of one that is split by MIG (which cannot be used whole)."""

    uuid: str
    name: str


class NvmlReader(DeviceReader):
    """Reads the GPUs it was given; all there are, until `choose`."""

    def __init__(self) -> None:
        """Raises NvmlMissingError."""
        self._busy = threading.Lock()
        self._handles: dict[str, Any] = {}
        self._warned: set[str] = set()
        self._open = False
        try:
            py3nvml.nvmlInit()
        except py3nvml.NVMLError as error:
            raise _missing(error) from None
        self._open = True
        try:
            self.gpus = _list_gpus()
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return tuple(DeviceId(LOCAL_NODE, gpu.uuid) for gpu in self.gpus)

    def choose(self, uuids: Sequence[str]) -> None:
        """Read these alone from now on."""
        self.gpus = tuple(gpu for gpu in self.gpus if gpu.uuid in uuids)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """A GPU that fell off the bus is left out; any other failure fails the reading whole.

        (Were a GPU left out for a passing failure, a trial that fits nowhere else would be refused
        for good.)
        """
        with self._busy:
            try:
                found = [s for gpu in self.gpus if (s := self._snapshot(gpu)) is not None]
            except DeviceReadError:
                self._handles.clear()  # handles may have died with the driver: look them up anew
                raise
        if not found:
            raise DeviceReadError("every GPU is lost; the machine must be restarted")
        return tuple(found)

    def close(self) -> None:
        """A library in which a read hangs is left open: closing it would hang as well."""
        if not self._open or not self._busy.acquire(timeout=CLOSE_SECONDS):
            return
        try:
            self._open = False
            py3nvml.nvmlShutdown()
        except py3nvml.NVMLError as error:
            log.debug("NVML does not shut down: %s", _words(error))
        finally:
            self._busy.release()

    def _snapshot(self, gpu: Gpu) -> DeviceSnapshot | None:
        try:
            handle = self._handle(gpu.uuid)
            before = _used_by_pid(handle)
            total, free = _memory(handle)
        except py3nvml.NVMLError as error:
            if error.value not in _LOST:
                raise DeviceReadError(f"{gpu.uuid}: {_words(error)}") from None
            if gpu.uuid not in self._warned:
                self._warned.add(gpu.uuid)
                log.warning("%s (%s) is left out: %s", gpu.uuid, gpu.name, _words(error))
            return None
        return DeviceSnapshot(
            address=DeviceId(LOCAL_NODE, gpu.uuid),
            name=gpu.name,
            total_bytes=total,
            free_bytes=min(free, total),
            utilisation=_utilisation(handle),
            processes=_processes(before, _used_by_pid(handle)),
        )

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = py3nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        return self._handles[uuid]


def _memory(handle: Any) -> tuple[int, int]:
    """Bytes in all and free; of a GPU that shares the machine's memory, the machine's."""
    try:
        memory = py3nvml.nvmlDeviceGetMemoryInfo(handle)
    except py3nvml.NVMLError as error:
        if error.value != py3nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return host_memory()
    return (memory.total, memory.free) if memory.total else host_memory()


def _utilisation(handle: Any) -> float | None:
    """0 to 1, or None: it is a preference among devices, no more (MIG and WSL never tell)."""
    rates = _advisory(py3nvml.nvmlDeviceGetUtilizationRates, handle)
    return None if rates is None else min(1.0, rates.gpu / 100)


def _processes(
    before: Mapping[int, int | None], after: Mapping[int, int | None]
) -> tuple[DeviceProcess, ...]:
    """Who holds memory, by what was read before and after the device's own figures."""
    found = []
    for pid in dict.fromkeys((*before, *after)):
        sizes = [before.get(pid, 0), after.get(pid, 0)]
        known = [size for size in sizes if size is not None]
        most, least = (max(known), min(known)) if len(known) == 2 else (None, None)
        found.append(DeviceProcess(pid, most, least, *name_and_user(pid)))
    return tuple(found)


def _used_by_pid(handle: Any) -> Mapping[int, int | None]:
    """Bytes by process (None: not known); one that draws too is listed twice."""
    used: dict[int, int | None] = {}
    for ask in (
        py3nvml.nvmlDeviceGetComputeRunningProcesses,
        py3nvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for process in _advisory(ask, handle) or ():
            before = used.get(process.pid)
            sizes = [size for size in (before, process.usedGpuMemory) if size is not None]
            used[process.pid] = max(sizes, default=None)
    return used


def _advisory(ask: Callable[[Any], Any], handle: Any) -> Any:
    """The answer, or None where this device or driver has none: nothing is decided by it alone."""
    try:
        return ask(handle)
    except py3nvml.NVMLError:
        return None


def _list_gpus() -> tuple[Gpu, ...]:
    """All that this process may use. Raises NvmlMissingError where every one fails."""
    try:
        n_gpus = py3nvml.nvmlDeviceGetCount()
    except py3nvml.NVMLError as error:
        raise _missing(error) from None
    gpus: list[Gpu] = []
    failures: list[str] = []
    for index in range(n_gpus):
        try:
            gpus += _units(py3nvml.nvmlDeviceGetHandleByIndex(index))
        except py3nvml.NVMLError as error:  # lost, or closed to this container
            failures.append(f"GPU {index} of NVML: {_words(error)}")
    if failures and not gpus:
        raise NvmlMissingError("; ".join(failures))
    for failure in failures:
        log.warning("left out: %s", failure)
    return tuple(gpus)


def _units(handle: Any) -> list[Gpu]:
    """The GPU itself, or its slices where MIG is on."""
    mode = _mig_mode(handle)
    handles = [handle] if mode != _MIG_ENABLED else list(_mig_handles(handle))
    return [Gpu(py3nvml.nvmlDeviceGetUUID(h), py3nvml.nvmlDeviceGetName(h)) for h in handles]


def _mig_mode(handle: Any) -> int | None:
    """None: neither the GPU nor, before version 450, the driver has MIG."""
    current, pending = c_uint(), c_uint()
    try:
        _call("nvmlDeviceGetMigMode", handle, byref(current), byref(pending))
    except py3nvml.NVMLError:
        return None
    return current.value


def _mig_handles(handle: Any) -> Iterator[Any]:
    n_slices = c_uint()
    _call("nvmlDeviceGetMaxMigDeviceCount", handle, byref(n_slices))
    for index in range(n_slices.value):
        slice_handle = py3nvml.c_nvmlDevice_t()
        try:
            _call("nvmlDeviceGetMigDeviceHandleByIndex", handle, c_uint(index), byref(slice_handle))
        except py3nvml.NVMLError as error:
            if error.value != py3nvml.NVML_ERROR_NOT_FOUND:  # a place that holds no slice
                raise
            continue
        yield slice_handle


def _call(function: str, *arguments: Any) -> None:
    """A function of NVML that py3nvml does not wrap; 0.2.7 is pinned. Raises NVMLError."""
    py3nvml._nvmlCheckReturn(py3nvml._nvmlGetFunctionPointer(function)(*arguments))


def _missing(error: Any) -> NvmlMissingError:
    none = error.value == py3nvml.NVML_ERROR_LIBRARY_NOT_FOUND
    reason = _MISSING.get(error.value) or f"NVML does not start: {_words(error)}"
    return NoNvmlLibraryError(reason) if none else NvmlMissingError(reason)


def _words(error: Any) -> str:
    """The error for people; a code that py3nvml does not know can fail even at that."""
    try:
        return str(error)
    except py3nvml.NVMLError:
        return f"NVML error {error.value}"
