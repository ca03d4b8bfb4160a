"""The GPUs that torch can use, told by a short child process, so that this one needs no torch.

Which they are depends on the build of torch, on the driver and on CUDA_VISIBLE_DEVICES, whose
numbers count in an order that only CUDA knows.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from automl.errors import ConfigError

TORCH_SECONDS = 120.0
"""Loading torch takes 1 to 10 s from a disk, and more from a network drive's cold cache."""
COMMAND = (sys.executable, "-m", "automl.training.cuda_uuids")
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
