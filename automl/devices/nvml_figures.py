"""What NVML says of one GPU: memory, load, power, heat, who is on it, compute mode, errors.

All but memory is advisory: a driver that does not tell is no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from py3nvml import py3nvml

from automl.devices.device import DeviceProcess
from automl.devices.host import host_memory
from automl.devices.processes import name_and_user

_MAX_PROCESSES = {
    py3nvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: 1,
    py3nvml.NVML_COMPUTEMODE_PROHIBITED: 0,
    py3nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: 1,
}


def memory(handle: Any) -> tuple[int, int]:
    """Bytes in all and free; of a GPU that shares the machine's memory, the machine's."""
    try:
        memory = py3nvml.nvmlDeviceGetMemoryInfo(handle)
    except py3nvml.NVMLError as error:
        if error.value != py3nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return host_memory()
    return (memory.total, memory.free) if memory.total else host_memory()


def utilisation(handle: Any) -> float | None:
    """0 to 1, or None: it is a preference among devices, no more (MIG and WSL never tell)."""
    rates = _advisory(py3nvml.nvmlDeviceGetUtilizationRates, handle)
    return None if rates is None else min(1.0, rates.gpu / 100)


def power_watts(handle: Any) -> float | None:
    """What it draws now; None: it does not tell."""
    milliwatts = _advisory(py3nvml.nvmlDeviceGetPowerUsage, handle)
    return None if milliwatts is None else milliwatts / 1000


def temperature_celsius(handle: Any) -> float | None:
    """Of the GPU's core; None: it does not tell."""
    degrees = _advisory(_core_temperature, handle)
    return None if degrees is None else float(degrees)


class Tenants(NamedTuple):
    """Who was on it at one moment."""

    used: Mapping[int, int | None]
    """Bytes by process (None: not known)."""
    computing: Set[int]
    """Those that only draw are no process in CUDA's sense."""


def processes(before: Tenants, after: Tenants) -> tuple[DeviceProcess, ...]:
    """Who holds memory, by what was read before and after the device's own figures."""
    found, drawing = [], after.used.keys() - after.computing
    for pid in dict.fromkeys((*before.used, *after.used)):
        sizes = [before.used.get(pid, 0), after.used.get(pid, 0)]
        known = [size for size in sizes if size is not None]
        most, least = (max(known), min(known)) if len(known) == 2 else (None, None)
        found.append(DeviceProcess(pid, most, least, *name_and_user(pid), pid not in drawing))
    return tuple(found)


def tenants(handle: Any) -> Tenants:
    """Now; one that draws too is listed twice by NVML."""
    computing = _advisory(py3nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    drawing = _advisory(py3nvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or ()
    used: dict[int, int | None] = {}
    for process in (*computing, *drawing):
        sizes = (used.get(process.pid), process.usedGpuMemory)
        used[process.pid] = max((size for size in sizes if size is not None), default=None)
    return Tenants(used, {process.pid for process in computing})


def max_processes(handle: Any) -> int | None:
    """How many processes may compute there, by its compute mode; None: any number."""
    return _MAX_PROCESSES.get(_advisory(py3nvml.nvmlDeviceGetComputeMode, handle))


def n_uncorrected(handle: Any) -> int | None:
    """Memory errors since the driver was loaded that ECC could not correct; None: not counted."""
    count: int | None = _advisory(_ecc_errors, handle)
    return count


def words(error: Any) -> str:
    """The error for people; a code that py3nvml does not know can fail even at that."""
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
    """The answer, or None where this device or driver has none: nothing is decided by it alone."""
    try:
        return ask(handle)
    except py3nvml.NVMLError:
        return None
