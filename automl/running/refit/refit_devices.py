"""Decides how many devices a refit takes and how, and the batch and learning rate for them. Pure.

With SGD a batch k times as large takes a learning rate k times as large, which rises from the
trial's own over the first epochs (Goyal et al., 2017, Accurate, Large Minibatch SGD: Training
ImageNet in 1 Hour, https://arxiv.org/abs/1706.02677). With Adam it takes √k times the rate (Malladi
et al., 2022, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms,
https://arxiv.org/abs/2205.10287). Their rule scales β₁, β₂ and ε too; here these stay as the trial
had them.

On a CPU `auto` is one process with all threads, or with one thread if steps are small: several
processes are no faster there (`experiments/011-refit`). Several seeds fill the devices by
themselves, one after another on each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from automl.config import ParallelKind, RefitArguments
from automl.errors import ConfigError
from automl.models.networks.network_family import TrainingParams, WarmUp
from automl.trial import Params, TrainingWork

WARM_UP_EPOCHS = 5
"""Epochs of warm-up by Goyal et al., limited to a quarter of all epochs."""
_DEFAULTS = {entry.name: entry.default for entry in fields(TrainingParams)}


@dataclass(frozen=True)
class ScaledParams:
    """The params of a trial for another batch size."""

    params: Params
    warm_up: WarmUp | None
    """The warm-up. None if the batch is no larger than the trial's."""
    note: str = ""
    """Line for people about the change."""


def scale_to_batch(
    params: Params, wanted: Any, n_parts: int, n_rows: int, epochs: int
) -> ScaledParams:
    """Return the trial's params for batches of `wanted` rows, of `n_rows` training rows.

    `wanted`: "auto" for the trial's own size on each of `n_parts`, None for its own size.
    """
    before = min(batch_size_of(params), n_rows)
    size = before * n_parts if wanted == "auto" else before if wanted is None else int(wanted)
    size = min(size, n_rows)
    clipped = {**params, "batch_size": size} if "batch_size" in params else params
    if size == before:
        return ScaledParams(clipped, None)
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
    return ScaledParams({**params, "batch_size": size, "lr": lr * factor}, warm_up, note)


def batch_size_of(params: Params) -> int:
    """Return the number of rows per step of the trial."""
    size = params.get("batch_size", _DEFAULTS["batch_size"])
    assert isinstance(size, int), "checked by the family"
    return size


LARGE_STEP_FLOPS = 2e7
"""Operations of a step from which several threads pay. Among the steps that `gain` times in its
manual, two threads took one of 1e6 operations 0.84 times as fast as one thread, and one of 3e8 1.37
times."""


@dataclass(frozen=True)
class RefitResources:
    """The devices of the machine that a refit may use."""

    n_gpus: int
    n_cores: int


@dataclass(frozen=True)
class RefitDevices:
    """The devices that one training takes."""

    n_gpus: int = 1
    """Number of GPUs, which is all that are to be used or one. It has no meaning on a machine
    without GPUs."""
    n_ranks: int = 1
    """Number of processes that train together."""
    n_threads: int = 1
    """Number of threads of each process."""
    data_parallel: bool = False
    why: str = ""
    """Line for people about the choice."""

    @property
    def n_parts(self) -> int:
        """Number of parts into which a batch is split."""
        return self.n_gpus if self.data_parallel else self.n_ranks


def devices_for_builtin(
    refit: RefitArguments, machine: RefitResources, work: TrainingWork | None
) -> RefitDevices:
    """Return the devices for the built-in training. `work` is that of the trial, or None if
    unknown. Raises ConfigError."""
    if machine.n_gpus == 0:
        return _on_cpu(refit, machine, work)
    n = machine.n_gpus
    if refit.parallel is ParallelKind.none or n == 1:
        return RefitDevices(why="on one GPU")
    if refit.parallel is ParallelKind.dataparallel:
        return RefitDevices(n_gpus=n, data_parallel=True, why=f"one process with {n} GPUs")
    if refit.parallel is ParallelKind.auto and refit.seeds > 1:
        return RefitDevices(why="a GPU for each seed, or pack of seeds")
    return RefitDevices(n_gpus=n, n_ranks=n, why=f"{n} processes, a GPU for each")


def devices_for_user_code(machine: RefitResources) -> RefitDevices:
    """Return the devices for a training of the user's own: all of them."""
    if machine.n_gpus == 0:
        return RefitDevices(n_threads=machine.n_cores, why="with all threads")
    return RefitDevices(n_gpus=machine.n_gpus, why=f"on {machine.n_gpus} GPUs")


def _on_cpu(
    refit: RefitArguments, machine: RefitResources, work: TrainingWork | None
) -> RefitDevices:
    if refit.parallel is ParallelKind.dataparallel:
        raise ConfigError(
            "parallel=dataparallel: it is for GPUs, and there is none here. Leave it out, or take "
            "parallel=ddp, which trains in several processes."
        )
    if refit.parallel is ParallelKind.ddp:
        n = machine.n_cores
        return RefitDevices(n_ranks=n, why=f"{n} processes on the CPU")
    if refit.seeds > 1:
        return RefitDevices(why="seeds side by side, a thread for each, or as a pack")
    if work is not None and work.step_flops < LARGE_STEP_FLOPS:
        return RefitDevices(
            why="one process with one thread, which its small steps are fastest with"
        )
    n = machine.n_cores
    return RefitDevices(
        n_threads=n,
        why=f"one process with all {n} threads, which on a CPU is as fast as several processes",
    )
