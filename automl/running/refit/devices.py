"""How many devices a refit takes, and how. Pure.

On a CPU `auto` is one process with all threads, or with one where steps are small: several
processes there are no faster (`experiments/011-refit`). Several seeds fill the devices by
themselves, one after another on each.
"""

from __future__ import annotations

from dataclasses import dataclass

from automl.config import Parallel, RefitConfig
from automl.errors import ConfigError
from automl.trial import Work

LARGE_STEP_FLOPS = 2e7
"""Where several threads begin to pay: of the steps that `gain` times in its manual one of 1e6
operations took two threads 0.84 times as fast as one, one of 3e8 1.37 times."""


@dataclass(frozen=True)
class Machine:
    """What there is to train on."""

    n_gpus: int
    n_cores: int


@dataclass(frozen=True)
class Taken:
    """What one training takes."""

    n_gpus: int = 1
    """All of them or none; of no meaning where there are none."""
    n_ranks: int = 1
    """Processes that train together."""
    n_threads: int = 1
    """Of each."""
    data_parallel: bool = False
    why: str = ""
    """For people."""

    @property
    def n_parts(self) -> int:
        """Into so many parts a batch is split."""
        return self.n_gpus if self.data_parallel else self.n_ranks


def taken(refit: RefitConfig, machine: Machine, work: Work | None) -> Taken:
    """For the built-in training; `work` is that of the trial, where it is known. Raises
    ConfigError."""
    if machine.n_gpus == 0:
        return _on_cpu(refit, machine, work)
    n = _n_gpus(refit, machine)
    if refit.parallel is Parallel.none or n == 1:
        return Taken(why="on one GPU")
    if refit.parallel is Parallel.dataparallel:
        return Taken(n_gpus=n, data_parallel=True, why=f"one process with {n} GPUs")
    if refit.parallel is Parallel.auto and refit.n_seeds > 1:
        return Taken(why="a GPU for each seed, or pack of seeds")
    return Taken(n_gpus=n, n_ranks=n, why=f"{n} processes, a GPU for each")


def users(refit: RefitConfig, machine: Machine) -> Taken:
    """For a training of the user's own: all that there is, or so many GPUs. Raises ConfigError."""
    n = _n_gpus(refit, machine)
    if machine.n_gpus == 0:
        return Taken(n_threads=machine.n_cores, why="with all threads")
    return Taken(n_gpus=n, why=f"on {n} GPUs")


def _n_gpus(refit: RefitConfig, machine: Machine) -> int:
    """That are to be taken. Raises ConfigError."""
    if refit.devices == "all":
        return machine.n_gpus
    if machine.n_gpus == 0:
        raise ConfigError(
            f"refit.devices={refit.devices}: it counts GPUs, of which there is none here, or the "
            "processes of refit.parallel=ddp. Leave it out, or give that, too."
        )
    if refit.devices > machine.n_gpus:
        raise ConfigError(
            f"refit.devices={refit.devices}: there are {machine.n_gpus} GPUs. Give fewer, or all."
        )
    return int(refit.devices)


def _on_cpu(refit: RefitConfig, machine: Machine, work: Work | None) -> Taken:
    if refit.parallel is Parallel.dataparallel:
        raise ConfigError(
            "refit.parallel=dataparallel: it is for GPUs, and there is none here. Leave it out, or "
            "take refit.parallel=ddp, which trains in several processes."
        )
    if refit.parallel is Parallel.ddp:
        n = machine.n_cores if refit.devices == "all" else int(refit.devices)
        threads = max(1, machine.n_cores // n)
        return Taken(n_ranks=n, n_threads=threads, why=f"{n} processes on the CPU")
    _n_gpus(refit, machine)
    if refit.n_seeds > 1:
        return Taken(why="seeds side by side, a thread for each, or as a pack")
    if work is not None and work.step_flops < LARGE_STEP_FLOPS:
        return Taken(why="one process with one thread, which its small steps are fastest with")
    n = machine.n_cores
    return Taken(
        n_threads=n,
        why=f"one process with all {n} threads, which on a CPU is as fast as several processes",
    )
