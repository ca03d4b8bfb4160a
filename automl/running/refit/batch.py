"""The batch and the learning rate of a refit that takes several devices. Pure.

A batch k times as large takes a learning rate k times as large with SGD (Goyal et al., 2017,
Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, https://arxiv.org/abs/1706.02677), which
rises from the trial's own over the first epochs, and √k times with Adam (Malladi et al., 2022, On
the SDEs and Scaling Rules for Adaptive Gradient Algorithms, https://arxiv.org/abs/2205.10287, whose
rule scales β₁, β₂ and ε too: these stay as the trial had them).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from automl.training.params import TrainingParams
from automl.training.plan import WarmUp
from automl.trial import Params

WARM_UP_EPOCHS = 5
"""Goyal et al.; but at most a quarter of all."""
_DEFAULTS = {entry.name: entry.default for entry in fields(TrainingParams)}


@dataclass(frozen=True)
class Scaled:
    """Params for another batch size."""

    params: Params
    warm_up: WarmUp | None
    """None: the batch is no larger than the trial's."""
    note: str = ""
    """For people."""


def scaled(params: Params, wanted: Any, n_parts: int, n_rows: int, epochs: int) -> Scaled:
    """The trial's params for batches of `wanted` rows (auto: its own on each of `n_parts`; None:
    its own), of a training part of `n_rows`."""
    before = min(batch_size_of(params), n_rows)
    size = before * n_parts if wanted == "auto" else before if wanted is None else int(wanted)
    size = min(size, n_rows)
    clipped = {**params, "batch_size": size} if "batch_size" in params else params
    if size == before:
        return Scaled(clipped, None)
    is_sgd = params.get("optimizer", _DEFAULTS["optimizer"]) == "sgd"
    factor = size / before if is_sgd else math.sqrt(size / before)
    lr = float(params.get("lr", _DEFAULTS["lr"]))  # type: ignore[arg-type]  # the family checks it
    note = (
        f"batch size {before} → {size}, learning rate {lr:.4g} → {lr * factor:.4g} "
        f"({'linearly, for sgd' if is_sgd else 'by the square root, for Adam'})"
    )
    warm_up = None
    if factor > 1:
        warm_up = WarmUp(max(1, min(WARM_UP_EPOCHS, epochs // 4)), 1 / factor)
        note += f", rising over {warm_up.epochs} epochs"
    return Scaled({**params, "batch_size": size, "lr": lr * factor}, warm_up, note)


def batch_size_of(params: Params) -> int:
    """Rows per step of the trial."""
    size = params.get("batch_size", _DEFAULTS["batch_size"])
    assert isinstance(size, int), "checked by the family"
    return size
