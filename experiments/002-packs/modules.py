"""What packs gain for networks of a user's own (torch.func), by size: one epoch, alone and packed.

In CPU time of this thread, as `gain_measurement.py`, and in wall time on a GPU, where an epoch ends
by waiting for it; 1,000 rows drawn at random, 500 to validate, Adam.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from automl.config import Precision, Task
from automl.models.families.python.family import ModuleKey, ModuleParams, PythonFamily
from automl.models.families.python.heavy import SIDE
from automl.models.networks.packs.module_trainer import ModulePackTrainer
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import NetworkTrainer, TrainingProblem

_N_EPOCHS = 3


@dataclass(frozen=True)
class Case:
    """A network of one size, and the rows of a step."""

    name: str
    width: int
    batch_size: int

    def problem(self) -> TrainingProblem:
        n_inputs, n_outputs = (2, 2) if self.name == "mlp" else (64, 10)
        model = PythonFamily(target=f"users_networks:{self.name}")
        return TrainingProblem(
            Task.classification, n_inputs, n_outputs, 1.0, model, SIDE, Precision.float32
        )

    def params(self) -> ModuleParams:
        return ModuleParams.from_params({"width": self.width, "batch_size": self.batch_size})


CASES = (
    Case("mlp", 16, 50),
    Case("mlp", 32, 100),
    Case("mlp", 64, 100),
    Case("mlp", 128, 100),
    Case("mlp", 512, 100),
    Case("Convolutions", 8, 64),
    Case("Convolutions", 32, 64),
)


def draw(problem: TrainingProblem, device: str) -> DataTensors:
    generator = torch.Generator().manual_seed(0)

    n_inputs, n_outputs = problem.n_inputs, problem.n_outputs
    assert isinstance(n_inputs, int)
    assert isinstance(n_outputs, int)

    def part(n_rows: int) -> PartTensors:
        x = torch.rand(n_rows, n_inputs, generator=generator)
        y = (3 * x.sum(1)).long() % n_outputs
        return PartTensors(x.to(device), y.to(device))

    return DataTensors(part(1000), part(500))


def seconds_per_epoch(run_epoch: Callable[[int], object], device: str) -> float:
    clock = time.thread_time if device == "cpu" else time.perf_counter
    run_epoch(0)  # first calls load libraries
    begun = clock()
    for epoch in range(1, 1 + _N_EPOCHS):
        run_epoch(epoch)
    return (clock() - begun) / _N_EPOCHS


def alone(case: Case, data: DataTensors, device: str) -> tuple[float, int]:
    """Seconds of an epoch, and the number of weights."""
    trainer = NetworkTrainer(case.problem(), case.params(), data, device=device, seed=0)
    n_weights = sum(p.numel() for p in trainer.model.parameters())
    return seconds_per_epoch(trainer.run_epoch, device), n_weights


def packed(case: Case, data: DataTensors, n_lanes: int, device: str) -> float:
    """Seconds of an epoch of all lanes, divided by their number."""
    params = case.params()
    key = ModuleKey(
        on_host=device == "cpu",
        optimizer=params.optimizer,
        batch_size=params.batch_size,
        precision=Precision.float32,
        arguments=params.arguments,
    )
    trainer = ModulePackTrainer(case.problem(), key, data, device=device)
    for number in range(n_lanes):
        trainer.add(number, params, number, None)
    return seconds_per_epoch(lambda _: trainer.run_epoch(), device) / n_lanes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--lanes", type=int, nargs="+", default=[4, 8, 16, 32])
    arguments.add_argument("--device", default="cpu", help="cpu, or a GPU as cuda:0")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    sizes = " | ".join(f"{n} lanes" for n in args.lanes)
    print_line(f"| network, batch | weights | alone, ms an epoch | {sizes} |")
    print_line("|---" * (3 + len(args.lanes)) + "|")
    for case in CASES:
        data = draw(case.problem(), args.device)
        ratios: dict[int, list[float]] = {n_lanes: [] for n_lanes in args.lanes}
        by_itself = []
        for _ in range(args.rounds):
            seconds, n_weights = alone(case, data, args.device)
            by_itself.append(seconds)
            for n_lanes, found in ratios.items():
                found.append(seconds / packed(case, data, n_lanes, args.device))
        cells = " | ".join(f"{statistics.median(found):.1f}" for found in ratios.values())
        print_line(
            f"| {case.name} of width {case.width}, {case.batch_size} | {n_weights:,} | "
            f"{1000 * statistics.median(by_itself):.0f} | {cells} |"
        )


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
