"""Reads GPUs through NVIDIA's driver by py3nvml, which only this module imports.

The oddities of py3nvml 0.2.7 stay in here. UUIDs must be bytes. Its errors can be neither hashed
nor pickled, so they become our own. Handles are never equal, so devices are known by UUID. It has
no calls for MIG, so its function table is used directly for the three that list slices.

A GPU that errs is drained until it answers again: it is shown with its fault, so that nothing new
starts there and no request is refused for good because of it. All figures but memory are
advisory: a driver that does not tell them is no failure.

CUDA's order is not known here (`torch_gpus.py` asks torch), and devices are not chosen here
(`device_reader.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from py3nvml import py3nvml

from automl.devices.device_reading import (
    DeviceProcess,
    DeviceReader,
    DeviceReadError,
    DeviceSnapshot,
)
from automl.devices.device_selection import number_devices
from automl.devices.host import host_memory, process_name_and_user
from automl.errors import AutoMLError
from automl.trial import LOCAL_NODE, DeviceId

_MAX_PROCESSES = {
    py3nvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: 1,
    py3nvml.NVML_COMPUTEMODE_PROHIBITED: 0,
    py3nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: 1,
}


def gpu_memory_bytes(handle: Any) -> tuple[int, int]:
    """Return all and free bytes of a GPU; the machine's, if the GPU shares the machine's memory."""
    try:
        memory = py3nvml.nvmlDeviceGetMemoryInfo(handle)
    except py3nvml.NVMLError as error:
        if error.value != py3nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return host_memory()
    return (memory.total, memory.free) if memory.total else host_memory()


def gpu_utilisation(handle: Any) -> float | None:
    """Return the load from 0 to 1, or None (MIG and WSL never tell). It only ranks devices."""
    rates = _advisory(py3nvml.nvmlDeviceGetUtilizationRates, handle)
    return None if rates is None else min(1.0, rates.gpu / 100)


def gpu_power_watts(handle: Any) -> float | None:
    """Return the power that the GPU draws now; None: the driver does not tell."""
    milliwatts = _advisory(py3nvml.nvmlDeviceGetPowerUsage, handle)
    return None if milliwatts is None else milliwatts / 1000


def gpu_temperature_celsius(handle: Any) -> float | None:
    """Return the temperature of the GPU's core; None: the driver does not tell."""
    degrees = _advisory(_core_temperature, handle)
    return None if degrees is None else float(degrees)


class GpuTenants(NamedTuple):
    """The processes that were on a GPU at one moment."""

    used: Mapping[int, int | None]
    """Bytes of the GPU by process; None: not known."""
    computing: Set[int]
    """Processes that compute; a process that only draws is none in CUDA's sense."""


def tenant_processes(before: GpuTenants, after: GpuTenants) -> tuple[DeviceProcess, ...]:
    """Return the processes that hold memory, by what was read before and after the device's own
    figures."""
    found, drawing = [], after.used.keys() - after.computing
    for pid in dict.fromkeys((*before.used, *after.used)):
        sizes = [before.used.get(pid, 0), after.used.get(pid, 0)]
        known = [size for size in sizes if size is not None]
        most, least = (max(known), min(known)) if len(known) == 2 else (None, None)
        found.append(
            DeviceProcess(pid, most, least, *process_name_and_user(pid), pid not in drawing)
        )
    return tuple(found)


def read_gpu_tenants(handle: Any) -> GpuTenants:
    """Return the processes on the GPU now. NVML lists a process twice that also draws."""
    computing = _advisory(py3nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    drawing = _advisory(py3nvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or ()
    used: dict[int, int | None] = {}
    for process in (*computing, *drawing):
        sizes = (used.get(process.pid), process.usedGpuMemory)
        used[process.pid] = max((size for size in sizes if size is not None), default=None)
    return GpuTenants(used, {process.pid for process in computing})


def gpu_max_processes(handle: Any) -> int | None:
    """Return how many processes may compute there by its compute mode; None: any number."""
    return _MAX_PROCESSES.get(_advisory(py3nvml.nvmlDeviceGetComputeMode, handle))


def n_uncorrected_errors(handle: Any) -> int | None:
    """Return the memory errors since the driver was loaded that ECC could not correct; None: not
    counted."""
    count: int | None = _advisory(_ecc_errors, handle)
    return count


def error_text(error: Any) -> str:
    """Return the text of an error; for a code that py3nvml does not know, even `str` can fail."""
    try:
        return str(error)
    except py3nvml.NVMLError:
        return f"NVML error {error.value}"


def _ecc_errors(handle: Any) -> Any:
    return py3nvml.nvmlDeviceGetTotalEccErrors(
        handle, py3nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, py3nvml.NVML_VOLATILE_ECC
    )


def _core_temperature(handle: Any) -> Any:
    return py3nvml.nvmlDeviceGetTemperature(handle, py3nvml.NVML_TEMPERATURE_GPU)


def _advisory(ask: Callable[[Any], Any], handle: Any) -> Any:
    """Return the answer, or None where this device or driver has none. No decision rests on it
    alone."""
    try:
        return ask(handle)
    except py3nvml.NVMLError:
        return None


log = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0
"""How long closing waits for a read that hangs."""
_MIG_ENABLED = 1  # NVML_DEVICE_MIG_ENABLE
_LOST = (py3nvml.NVML_ERROR_GPU_IS_LOST, py3nvml.NVML_ERROR_RESET_REQUIRED)
_ECC_FAULT = "ECC found memory errors that it could not correct; reset it"
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
    """Raised when the machine has no NVIDIA driver, which is no fault where no GPU is asked for."""


@dataclass(frozen=True)
class NvmlGpu:
    """A GPU, or a slice of a GPU that MIG splits (which cannot be used whole)."""

    uuid: str
    name: str
    nvml_number: int
    """NVML's number of the GPU; all slices of a GPU have the same."""


class NvmlReader(DeviceReader):
    """Reads GPUs by NVML: all that are present, or after `choose` only the chosen ones."""

    def __init__(self) -> None:
        """Load NVML and list the GPUs. Raises NvmlMissingError."""
        self._busy = threading.Lock()
        self._handles: dict[str, Any] = {}
        self._last: dict[str, DeviceSnapshot] = {}
        """The last snapshot of each GPU that answered."""
        self._faults: dict[str, str] = {}
        """The last fault of each GPU that is not well, as it was logged."""
        self._n_uncorrected: dict[str, int | None] = {}
        """Memory errors of each GPU when it was first read."""
        self._cuda_numbers: Mapping[str, int] = {}
        """CUDA's number of each GPU for which it is known."""
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

    def choose(self, uuids: Sequence[str], in_cuda_order: Sequence[str] = ()) -> None:
        """Read only these GPUs from now on."""
        self.gpus = tuple(gpu for gpu in self.gpus if gpu.uuid in uuids)
        self._cuda_numbers = number_devices(uuids, in_cuda_order)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """Return all GPUs.

        A GPU that errs is shown as it was last, with its fault and no free memory. A lost GPU of
        which nothing is known is left out. Raises DeviceReadError where no GPU is well.
        """
        with self._busy:
            found = [s for gpu in self.gpus if (s := self._snapshot(gpu)) is not None]
        faults = [f"{s.address.uuid}: {s.fault}" for s in found if s.fault is not None]
        if all(snapshot.lost for snapshot in found):
            details = f" ({'; '.join(faults)})" if faults else ""
            raise DeviceReadError(
                f"every GPU is lost{details}; they must be reset, or the machine restarted"
            )
        if len(faults) == len(found):
            raise DeviceReadError("; ".join(faults))
        return tuple(found)

    def close(self) -> None:
        """Shut NVML down. It is left open while a read hangs, since closing would hang as well."""
        if not self._open or not self._busy.acquire(timeout=CLOSE_SECONDS):
            return
        try:
            self._open = False
            py3nvml.nvmlShutdown()
        except py3nvml.NVMLError as error:
            log.debug("NVML does not shut down: %s", error_text(error))
        finally:
            self._busy.release()

    def _snapshot(self, gpu: NvmlGpu) -> DeviceSnapshot | None:
        try:
            return self._note_well(gpu, self._read_well(gpu))
        except py3nvml.NVMLError as error:
            self._handles.pop(gpu.uuid, None)  # the handle may have died with the driver
            return self._note_fault(gpu, error_text(error), lost=error.value in _LOST)

    def _read_well(self, gpu: NvmlGpu) -> DeviceSnapshot:
        """Return a snapshot of the GPU. Raises NVMLError."""
        handle = self._handle(gpu.uuid)
        before = read_gpu_tenants(handle)
        total, free = gpu_memory_bytes(handle)
        n_errors = n_uncorrected_errors(handle)
        n_first = self._n_uncorrected.setdefault(gpu.uuid, n_errors)
        has_erred = n_errors is not None and n_first is not None and n_errors > n_first
        return DeviceSnapshot(
            address=DeviceId(LOCAL_NODE, gpu.uuid),
            name=gpu.name,
            total_bytes=total,
            free_bytes=min(free, total),
            utilisation=gpu_utilisation(handle),
            processes=tenant_processes(before, read_gpu_tenants(handle)),
            max_processes=gpu_max_processes(handle),
            fault=_ECC_FAULT if has_erred else None,
            lost=has_erred,
            nvml_number=gpu.nvml_number,
            cuda_number=self._cuda_numbers.get(gpu.uuid),
            power_watts=gpu_power_watts(handle),
            temperature_celsius=gpu_temperature_celsius(handle),
        )

    def _note_well(self, gpu: NvmlGpu, snapshot: DeviceSnapshot) -> DeviceSnapshot:
        self._last[gpu.uuid] = snapshot
        if snapshot.fault is not None:
            self._warn_once(gpu, snapshot.fault)
        elif self._faults.pop(gpu.uuid, None) is not None:
            log.warning("%s (%s) is used again", gpu.uuid, gpu.name)
        return snapshot

    def _note_fault(self, gpu: NvmlGpu, fault: str, *, lost: bool) -> DeviceSnapshot | None:
        """Return the last snapshot with the fault; None for a lost GPU that never answered.

        Raises DeviceReadError for any other GPU that never answered, as its size is not known.
        """
        last = self._last.get(gpu.uuid)
        if last is None and not lost:
            raise DeviceReadError(f"{gpu.uuid}: {fault}")
        self._warn_once(gpu, fault)
        if last is None:
            return None
        unknown = replace(last, utilisation=None, power_watts=None, temperature_celsius=None)
        return replace(unknown, free_bytes=0, processes=(), fault=fault, lost=lost)

    def _warn_once(self, gpu: NvmlGpu, fault: str) -> None:
        """Log each fault once, until the GPU is well again."""
        if self._faults.get(gpu.uuid) != fault:
            self._faults[gpu.uuid] = fault
            log.warning("%s (%s) takes no new trial: %s", gpu.uuid, gpu.name, fault)

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = py3nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        return self._handles[uuid]


def _list_gpus() -> tuple[NvmlGpu, ...]:
    """Return all GPUs that this process may use. Raises NvmlMissingError where every one fails."""
    try:
        n_gpus = py3nvml.nvmlDeviceGetCount()
    except py3nvml.NVMLError as error:
        raise _missing(error) from None
    gpus: list[NvmlGpu] = []
    failures: list[str] = []
    for index in range(n_gpus):
        try:
            gpus += _gpu_or_slices(py3nvml.nvmlDeviceGetHandleByIndex(index), index)
        except py3nvml.NVMLError as error:  # the GPU is lost, or closed to this container
            failures.append(f"GPU {index} of NVML: {error_text(error)}")
    if failures and not gpus:
        raise NvmlMissingError("; ".join(failures))
    for failure in failures:
        log.warning("left out: %s", failure)
    return tuple(gpus)


def _gpu_or_slices(handle: Any, number: int) -> list[NvmlGpu]:
    """Return the GPU itself, or its slices where MIG is on."""
    mode = _mig_mode(handle)
    handles = [handle] if mode != _MIG_ENABLED else list(_mig_handles(handle))
    return [
        NvmlGpu(py3nvml.nvmlDeviceGetUUID(h), py3nvml.nvmlDeviceGetName(h), number) for h in handles
    ]


def _mig_mode(handle: Any) -> int | None:
    """Return the MIG mode; None: the GPU has no MIG, or the driver (before version 450) has
    none."""
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
            if error.value != py3nvml.NVML_ERROR_NOT_FOUND:  # this index has no slice
                raise
            continue
        yield slice_handle


def _call(function: str, *arguments: Any) -> None:
    """Call a function of NVML that py3nvml does not wrap; 0.2.7 is pinned. Raises NVMLError."""
    py3nvml._nvmlCheckReturn(py3nvml._nvmlGetFunctionPointer(function)(*arguments))


def _missing(error: Any) -> NvmlMissingError:
    none = error.value == py3nvml.NVML_ERROR_LIBRARY_NOT_FOUND
    reason = _MISSING.get(error.value) or f"NVML does not start: {error_text(error)}"
    return NoNvmlLibraryError(reason) if none else NvmlMissingError(reason)
