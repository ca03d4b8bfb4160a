"""Which GPU a cluster has given to this process, by NVML's name for it."""

from __future__ import annotations

from contextlib import closing

from automl.devices.cuda_order import torch_uuids
from automl.devices.nvml import NvmlReader
from automl.devices.selection import of_job, same_device, visible
from automl.errors import ConfigError


def given_gpu(setting: str) -> str:
    """The one that this `CUDA_VISIBLE_DEVICES`, which this process runs with, shows.

    Its numbers count in CUDA's order, which torch tells; where torch can use none of them, NVML's.
    Raises AutoMLError where it is not one.
    """
    with closing(NvmlReader()) as reader:
        there = [gpu.uuid for gpu in reader.gpus]
    if setting.upper().startswith(("GPU-", "MIG-")):
        shown = visible(setting, there)
    elif in_cuda_order := torch_uuids():
        shown = tuple(u for u in there if any(same_device(u, t) for t in in_cuda_order))
    else:
        shown = of_job(setting, there)
    if len(shown) != 1:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES={setting!r} shows {len(shown)} of the GPUs {', '.join(there)}, "
            "and should show the one that the cluster has given: start the node's Ray with "
            "CUDA_VISIBLE_DEVICES unset, or set to UUIDs."
        )
    return shown[0]
