"""The GPUs that torch can use, told by a short child process, so that this one needs no torch.

Which they are depends on the build of torch, on the driver and on CUDA_VISIBLE_DEVICES, whose
numbers count in an order that only CUDA knows.

Which GPU a cluster has given to this process, by NVML's name for it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

from automl.devices.device_selection import devices_of_job, same_device, visible_devices
from automl.devices.nvml import NvmlReader
from automl.errors import ConfigError

TORCH_SECONDS = 120.0
"""Loading torch takes 1 to 10 s from a disk, and more from a network drive's cold cache."""
COMMAND = (sys.executable, "-m", "automl.models.cuda_uuids")
_REMEDY = "Use devices=host to train on the CPU, or devices=nvml to go without asking torch."


def torch_uuids(
    command: Sequence[str] = COMMAND, timeout_seconds: float = TORCH_SECONDS
) -> tuple[str, ...]:
    """UUIDs in CUDA's order; empty where torch has no CUDA. Raises ConfigError when torch fails."""
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"devices=auto: torch did not list its GPUs within {timeout_seconds:g} s; the driver "
            f"may hang (does nvidia-smi answer?). {_REMEDY}"
        ) from None
    if child.returncode != 0:
        last = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
        raise ConfigError(f"devices=auto: torch cannot list its GPUs: {last}. {_REMEDY}")
    lines = (line.strip() for line in child.stdout.splitlines())
    return tuple(line for line in lines if line.startswith(("GPU-", "MIG-")))


def given_gpu(setting: str) -> str:
    """The one that this `CUDA_VISIBLE_DEVICES`, which this process runs with, shows.

    Its numbers count in CUDA's order, which torch tells; where torch can use none of them, NVML's.
    Raises AutoMLError where it is not one.
    """
    with closing(NvmlReader()) as reader:
        there = [gpu.uuid for gpu in reader.gpus]
    if setting.upper().startswith(("GPU-", "MIG-")):
        shown = visible_devices(setting, there)
    elif in_cuda_order := torch_uuids():
        shown = tuple(u for u in there if any(same_device(u, t) for t in in_cuda_order))
    else:
        shown = devices_of_job(setting, there)
    if len(shown) != 1:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES={setting!r} shows {len(shown)} of the GPUs {', '.join(there)}, "
            "and should show the one that the cluster has given: start the node's Ray with "
            "CUDA_VISIBLE_DEVICES unset, or set to UUIDs."
        )
    return shown[0]
