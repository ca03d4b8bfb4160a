"""Finds the GPUs that torch can use by a short child process, so that this one needs no torch.

They depend on the build of torch, on the driver and on CUDA_VISIBLE_DEVICES, whose numbers count in
an order that only CUDA knows. The module also finds the GPU that a cluster gave to this process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

from automl.devices.device_selection import devices_of_job, is_same_device, visible_devices
from automl.devices.nvml import NvmlReader
from automl.errors import ConfigError

TORCH_SECONDS = 120.0
"""How long torch may take to list its GPUs. Loading torch takes 1 to 10 s from a disk, and more
from a network drive's cold cache."""
COMMAND = (sys.executable, "-m", "automl.models.cuda_uuids")
_REMEDY = "Use devices.only=cpu to train on the CPU, or nvml to go without asking torch."


def torch_gpu_uuids(
    command: Sequence[str] = COMMAND, timeout_seconds: float = TORCH_SECONDS
) -> tuple[str, ...]:
    """Return UUIDs in CUDA's order; empty where torch has no CUDA. Raises ConfigError when torch
    fails."""
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"devices.only=auto: torch did not list its GPUs within {timeout_seconds:g} s; the "
            f"driver may hang (does nvidia-smi answer?). {_REMEDY}"
        ) from None
    if child.returncode != 0:
        last = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
        raise ConfigError(f"devices.only=auto: torch cannot list its GPUs: {last}. {_REMEDY}")
    lines = (line.strip() for line in child.stdout.splitlines())
    return tuple(line for line in lines if line.startswith(("GPU-", "MIG-")))


def assigned_gpu(setting: str) -> str:
    """Return the one GPU that this process's `CUDA_VISIBLE_DEVICES` (`setting`) shows.

    Its numbers count in CUDA's order, which torch tells; where torch can use no GPU, in NVML's.
    Raises AutoMLError where the setting does not show exactly one.
    """
    with closing(NvmlReader()) as reader:
        present = [gpu.uuid for gpu in reader.gpus]
    if setting.upper().startswith(("GPU-", "MIG-")):
        shown = visible_devices(setting, present)
    elif in_cuda_order := torch_gpu_uuids():
        shown = tuple(u for u in present if any(is_same_device(u, t) for t in in_cuda_order))
    else:
        shown = devices_of_job(setting, present)
    if len(shown) != 1:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES={setting!r} shows {len(shown)} of the GPUs {', '.join(present)}"
            ", and should show the one that the cluster has given: start the node's Ray with "
            "CUDA_VISIBLE_DEVICES unset, or set to UUIDs."
        )
    return shown[0]
