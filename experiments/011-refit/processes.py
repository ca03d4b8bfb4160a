"""Several processes against several threads for one training on a CPU: see README.md."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from automl.config import Precision, Task
from automl.in_trial.goal import StudyGoal
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import NetworkTrainer, RankGroup, TrainingProblem
from automl.trial import Direction

CONTEXT = multiprocessing.get_context("spawn")
N_EPOCHS = 5
N_MORE = 1001
"""Rows that leave a last batch which is neither whole nor even."""
N_INPUTS, WIDTH, DEPTH, N_CLASSES = 100, 565, 3, 10


@dataclass(frozen=True)
class Way:
    name: str
    n_processes: int
    n_threads: int
    by_torch: bool = False
    """torch's DistributedDataParallel in place of one sum of the flat gradient."""


WAYS = (
    Way("1 process, 1 thread", 1, 1),
    Way("1 process, 2 threads", 1, 2),
    Way("2 processes, 1 thread each", 2, 1),
    Way("2 processes, torch's DDP", 2, 1, by_torch=True),
)


class OnlySums(RankGroup):
    """For gradients that torch has summed already."""

    def add(self, numbers: torch.Tensor) -> None:
        if numbers.dtype is torch.float64:  # the sums of losses; weights are float32
            super().add(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--equal", action="store_true", help="compare losses, not speed")
    asked = parser.parse_args()
    if asked.equal:
        say_differences(asked.rows + N_MORE, asked.batch)
        return
    with tempfile.TemporaryDirectory() as folder:
        teams = [Team(way, asked.rows, asked.batch, Path(folder)) for way in WAYS]
        for team in teams:
            team.epoch()  # warms up
        rounds = [[team.epoch() for team in teams] for _ in range(asked.rounds)]
        for team in teams:
            team.end()
    say(asked.rows, rounds)


def say(n_rows: int, rounds: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Medians over rounds, ratios within each."""
    sys.stdout.write("| | rows/s | times one thread | CPU seconds, times one thread |\n")
    sys.stdout.write("|---|---|---|---|\n")
    for number, way in enumerate(WAYS):
        wall = statistics.median(n_rows / one[number][0] for one in rounds)
        gain = statistics.median(one[0][0] / one[number][0] for one in rounds)
        cpu = statistics.median(one[number][1] / one[0][1] for one in rounds)
        sys.stdout.write(f"| {way.name} | {wall:,.0f} | {gain:.2f} | {cpu:.2f} |\n")


class Team:
    """The processes of one way, which wait for their turn."""

    def __init__(self, way: Way, n_rows: int, batch: int, folder: Path) -> None:
        meeting = str(folder / str(WAYS.index(way)))
        self._pipes: list[Connection] = []
        for rank in range(way.n_processes):
            ours, theirs = CONTEXT.Pipe()
            args = (way, rank, n_rows, batch, meeting, theirs)
            CONTEXT.Process(target=serve, args=args, daemon=True).start()
            self._pipes.append(ours)

    def epoch(self) -> tuple[float, float]:
        """Wall and CPU seconds of one."""
        begun = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(True)
        cpu = sum(pipe.recv() for pipe in self._pipes)
        return time.perf_counter() - begun, cpu

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.send(False)


def serve(way: Way, rank: int, n_rows: int, batch: int, meeting: str, pipe: Connection) -> None:
    torch.set_num_threads(way.n_threads)
    ranks = (OnlySums if way.by_torch else RankGroup)(rank, way.n_processes)
    if way.n_processes > 1:
        where = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=way.n_processes)
    found = trainer(n_rows, batch, ranks)
    if way.by_torch:
        found._forward = nn.parallel.DistributedDataParallel(found.model)
    epoch = 0
    while pipe.recv():
        begun = time.process_time()
        found.run_epoch(epoch)
        pipe.send(time.process_time() - begun)
        epoch += 1


def say_differences(n_rows: int, batch: int) -> None:
    """The largest of any loss after any epoch, in float64, of two processes against one."""
    say_line(f"{n_rows:,} rows, batches of {batch:,}, the last of {n_rows % batch or batch:,}\n")
    say_line("| | largest difference of a loss | losses of the last epoch |")
    say_line("|---|---|---|")
    for optimizer in ("sgd", "adam"):
        with tempfile.TemporaryDirectory() as folder:
            alone, *_ = curves(1, n_rows, batch, optimizer, Path(folder))
            told = curves(2, n_rows, batch, optimizer, Path(folder))
        largest = max(
            abs(one - other)
            for curve in told
            for epoch, expected in zip(curve, alone, strict=True)
            for one, other in zip(epoch, expected, strict=True)
        )
        last = ", ".join(f"{loss:.4f}" for loss in alone[-1])
        say_line(f"| {optimizer}, {N_EPOCHS} epochs | {largest:.1e} | {last} |")


def curves(
    n_processes: int, n_rows: int, batch: int, optimizer: str, folder: Path
) -> list[list[list[float]]]:
    """Of each process the losses of each epoch."""
    pipes, children = [], []
    for rank in range(n_processes):
        ours, theirs = CONTEXT.Pipe()
        args = (rank, n_processes, n_rows, batch, optimizer, str(folder / "meeting"), theirs)
        child = CONTEXT.Process(target=tell_losses, args=args, daemon=True)
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    told = [pipe.recv() for pipe in pipes]
    for pipe, child in zip(pipes, children, strict=True):
        pipe.send(None)
        child.join()
    return told


def tell_losses(
    rank: int,
    n_processes: int,
    n_rows: int,
    batch: int,
    optimizer: str,
    meeting: str,
    pipe: Connection,
) -> None:
    torch.set_num_threads(1)
    ranks = RankGroup(rank, n_processes)
    if n_processes > 1:
        where = f"file://{meeting}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=n_processes)
    found = trainer(n_rows, batch, ranks, Precision.float64, optimizer)
    pipe.send([[*found.run_epoch(epoch).values()] for epoch in range(N_EPOCHS)])
    pipe.recv()  # until all have been heard


def say_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def trainer(
    n_rows: int,
    batch: int,
    ranks: RankGroup,
    precision: Precision = Precision.float32,
    optimizer: str = "adam",
) -> NetworkTrainer:
    """Of a network of some 700,000 weights."""
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float64 if precision is Precision.float64 else torch.float32
    x = torch.randn(n_rows, N_INPUTS, generator=generator, dtype=dtype)
    y = torch.randint(N_CLASSES, (n_rows,), generator=generator)
    data = DataTensors(PartTensors(x, y), PartTensors(x[:0], y[:0]))
    problem = TrainingProblem(
        Task.classification,
        N_INPUTS,
        N_CLASSES,
        1.0,
        MLPFamily(),
        SIDE,
        precision,
        goal=StudyGoal("train_loss", Direction.minimize, keeps_last=True),
    )
    sizes = {"depth": DEPTH, "width": WIDTH, "batch_size": batch}
    lr = 0.05 if optimizer == "sgd" else 1e-3
    params = problem.params({**sizes, "lr": lr, "optimizer": optimizer})
    return NetworkTrainer(problem, params, data, device="cpu", seed=0, ranks=ranks)


if __name__ == "__main__":
    main()
