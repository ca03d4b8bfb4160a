"""Prints the UUIDs of torch's GPUs, one per line: `python -m automl.models.cuda_uuids`.

The order is CUDA's, under CUDA_VISIBLE_DEVICES. Without a GPU it prints nothing. It is a module of
its own because it runs as a process of its own, which loads torch.
"""

from __future__ import annotations

import sys

import torch


def cuda_uuids() -> list[str]:
    """Return the UUIDs of the GPUs in the form of NVML.

    torch tells a slice (MIG) from a whole GPU only by its name.
    """
    if not torch.cuda.is_available():
        return []
    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [f"{'MIG' if ' MIG ' in device.name else 'GPU'}-{device.uuid}" for device in devices]


if __name__ == "__main__":
    sys.stdout.writelines(f"{uuid}\n" for uuid in cuda_uuids())
