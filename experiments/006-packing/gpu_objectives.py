"""What workers train for `gpu_*.py`: networks by size, and functions that hold what they are told.

Each runs on the CPU, too, for dry runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import torch
from networks_by_size import OPTIMIZERS, Make, conv, mlp, objective_of, recurrent, transformer
from torch import nn

import automl
from automl.trial import Params, ParamValue

MIB = 2**20
FAMILIES: Mapping[str, Callable[..., Make]] = {
    "MLP": lambda width, depth, batch, size: mlp(width, depth, batch),
    "transformer": transformer,
    "conv": lambda width, depth, batch, size: conv(width // 8, depth, batch, size),
    "RNN": recurrent,
}
_SIZES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "MLP": ((256, 4096), (1, 6), (64, 8192), (1, 1)),
    "transformer": ((128, 1024), (1, 8), (4, 64), (32, 256)),
    "conv": ((128, 1024), (1, 3), (8, 128), (16, 64)),
    "RNN": ((128, 2048), (1, 3), (8, 128), (16, 128)),
}
"""Of each family: width, depth, rows of a batch, and the length or side of each."""
_SMALL: Mapping[str, tuple[tuple[int, int], ...]] = {
    "MLP": ((64, 256), (1, 3), (16, 64), (1, 1)),
    "transformer": ((64, 128), (1, 2), (2, 4), (8, 16)),
    "conv": ((128, 128), (1, 1), (4, 8), (8, 16)),
    "RNN": ((32, 128), (1, 2), (4, 8), (8, 16)),
}
"""For dry runs on the CPU."""
STAGES = ("fresh", "a tensor", "a matrix product", "a convolution")


def train(trial: automl.TrialContext) -> None:
    """A network of the family and size that the params name, beside `data_mib` of data that stays
    on the device all the time."""
    p: Any = trial.params
    data = torch.zeros(p.get("data_mib", 0) * MIB, dtype=torch.uint8, device=trial.device)
    make = FAMILIES[p["family"]](p["width"], p["depth"], p["batch"], p["size"])
    optimizer = OPTIMIZERS[p["optimizer"]]
    n_steps, n_epochs = p.get("n_steps", 3), p.get("n_epochs", 1)
    objective_of(make, optimizer, n_steps, n_epochs, p.get("loading_ms", 0) / 1000)(trial)
    del data


def shapes(family: str, random: Random, *, small: bool = False) -> Iterator[Params]:
    """Drawn without end; widths are multiples of 8, for heads."""
    bounds = (_SMALL if small else _SIZES)[family]
    while True:
        width, depth, batch, size = (
            round(math.exp(random.uniform(math.log(low), math.log(high)))) for low, high in bounds
        )
        drawn: dict[str, ParamValue] = {"family": family, "width": max(8, width // 8 * 8)}
        drawn |= {"depth": depth, "batch": batch, "size": size}
        yield drawn | {"optimizer": random.randrange(len(OPTIMIZERS))}


def fill(trial: automl.TrialContext) -> None:
    """Holds `mib` in one tensor for `seconds`, and reports four times, the first at once."""
    mib, seconds = float(str(trial.params["mib"])), float(str(trial.params["seconds"]))
    kept = torch.zeros(int(mib * MIB), dtype=torch.uint8, device=trial.device)
    for epoch in range(4):
        time.sleep(0.0 if trial.surveying else seconds / 4 * (epoch > 0))
        trial.report(epoch, {"val_loss": float(kept[epoch])})


def small_steps(trial: automl.TrialContext) -> None:
    """So many steps of a small network, whose kernels leave most of a GPU idle."""
    p: Any = trial.params
    make, optimizer = mlp(p["width"], 4, 256), OPTIMIZERS[0]
    objective_of(make, optimizer, p["n_steps"] // 8, 8)(trial)


def stages(trial: automl.TrialContext) -> None:
    """One thing more of CUDA at a time. Each is reported twice, with an even step first: the second
    report waits until the first was answered, so that nothing more is done meanwhile."""
    device = trial.device
    does: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: torch.zeros(1, device=device),
        lambda: torch.zeros(64, 64, device=device) @ torch.zeros(64, 64, device=device),
        lambda: nn.Conv2d(3, 8, 3).to(device)(torch.zeros(1, 3, 16, 16, device=device)),
    )
    for number, do in enumerate(does):
        do()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        for step in (2 * number, 2 * number + 1):
            trial.report(step, {"val_loss": 0.0})
