"""`python -m automl.models.cuda_uuids`: prints the UUIDs of torch's GPUs, one per line.

In CUDA's order and under CUDA_VISIBLE_DEVICES; nothing else is printed, and nothing without a GPU.
"""

from __future__ import annotations

import sys

import torch


def cuda_uuids() -> list[str]:
    """UUIDs as NVML prints them. torch tells a slice (MIG) from a whole GPU by its name only."""
    if not torch.cuda.is_available():
        return []
    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [f"{'MIG' if ' MIG ' in device.name else 'GPU'}-{device.uuid}" for device in devices]


if __name__ == "__main__":
    sys.stdout.writelines(f"{uuid}\n" for uuid in cuda_uuids())
