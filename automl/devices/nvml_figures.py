"""What NVML says of one GPU: memory, load, power, heat, who is on it, compute mode, errors.

All but memory is advisory: a driver that does not tell is no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

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


def processes(
    before: Mapping[int, int | None], after: Mapping[int, int | None], drawing: Set[int]
) -> tuple[DeviceProcess, ...]:
    """Who holds memory, by what was read before and after the device's own figures."""
    found = []
    for pid in dict.fromkeys((*before, *after)):
        sizes = [before.get(pid, 0), after.get(pid, 0)]
        known = [size for size in sizes if size is not None]
        most, least = (max(known), min(known)) if len(known) == 2 else (None, None)
        found.append(DeviceProcess(pid, most, least, *name_and_user(pid), pid not in drawing))
    return tuple(found)


def used_by_pid(handle: Any) -> Mapping[int, int | None]:
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


def only_drawing(handle: Any) -> Set[int]:
    """Pids of those that draw and do not compute: they are no process in CUDA's sense."""
    drawing, computing = (
        {process.pid for process in _advisory(ask, handle) or ()}
        for ask in (
            py3nvml.nvmlDeviceGetGraphicsRunningProcesses,
            py3nvml.nvmlDeviceGetComputeRunningProcesses,
        )
    )
    return drawing - computing


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
