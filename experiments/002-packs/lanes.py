"""Times packs by padded width and number of lanes on one device, and prints them as a table.

The lanes are alike and fill their width: depth 4, batch 100, SGD, the disc set, float32. So this is
the most that a pack can gain; `gain_measurement.py` times packs as a sweep makes them. By
wall-clock, since
a thread waits for its GPU; an epoch ends with such a wait.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from measure import PLAN

from automl.config import Precision, Task
from automl.data.features import n_features
from automl.data.load import load_dataset
from automl.models.families.mlp.family import MLPFamily, MLPKey, MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import pack_size
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataOnDevices, DataTensors
from automl.models.networks.trainer import NetworkTrainer, TrainingProblem

_N_EPOCHS = 5  # timed, after one that is not


@dataclass(frozen=True)
class Bench:
    """What is the same for all that is timed."""

    problem: TrainingProblem
    data: DataTensors
    device: str

    def params(self, width: int) -> MLPParams:
        return MLPParams(
            depth=4, width=width, lr=0.01, batch_size=100, optimizer="sgd", momentum=0.0
        )

    def alone(self, width: int) -> Cell:
        """One trial by itself."""
        trainer = NetworkTrainer(
            self.problem, self.params(width), self.data, device=self.device, seed=0
        )
        return self._time(trainer.run_epoch, 1)

    def packed(self, width: int, n_lanes: int) -> Cell:
        """A pack with all its lanes taken."""
        params = self.params(width)
        pack = MLPPackTrainer(self.problem, params.batch_size, width, self.data, device=self.device)
        for number in range(n_lanes):
            pack.add(number, params, number, None)
        return self._time(lambda epoch: pack.run_epoch(), n_lanes)

    def _time(self, run_epoch: Callable[[int], object], n_trials: int) -> Cell:
        on_gpu = self.device != "cpu"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        seconds = []
        for epoch in range(_N_EPOCHS + 1):
            begun = time.perf_counter()
            run_epoch(epoch)
            seconds.append(time.perf_counter() - begun)
        peak_bytes = torch.cuda.max_memory_allocated(self.device) if on_gpu else None
        return Cell(statistics.median(seconds[1:]) / n_trials, peak_bytes)


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    seconds: float
    """Per trial and epoch."""
    peak_bytes: int | None
    """The most that torch had allocated on the GPU; None: on the host."""

    def __str__(self) -> str:
        memory = "" if self.peak_bytes is None else f" ({self.peak_bytes / 2**20:.0f} MiB)"
        return f"{1000 * self.seconds:.3f} ms{memory}"


def open_bench(device: str) -> Bench:
    """The disc set on a device."""
    dataset = load_dataset(PLAN.data)
    n_classes = len(dataset.classes)
    problem = TrainingProblem(
        Task.classification,
        n_features(dataset.columns),
        n_classes,
        1.0,
        MLPFamily(),
        SIDE,
        Precision.float32,
    )
    return Bench(problem, DataOnDevices(dataset).tensors(device, problem.dtype), device)


def row(bench: Bench, width: int, lanes: Sequence[int], deadline: float) -> list[str]:
    """The cells of one width; `-` for a pack that might not be done before the deadline."""
    key = MLPKey(bench.device == "cpu", "sgd", 100, Precision.float32, width=width)
    alone = bench.alone(width)
    cells, best = [f"{width}", str(alone)], (alone.seconds, 1)
    for n_lanes in lanes:
        at_most = alone.seconds * n_lanes * (_N_EPOCHS + 1)
        if time.monotonic() + at_most > deadline:
            cells.append("-")
            continue
        try:
            cell = bench.packed(width, n_lanes)
        except torch.OutOfMemoryError:
            cells.append("out of memory")
            continue
        cells.append(str(cell))
        best = min(best, (cell.seconds, n_lanes))
    return [*cells, f"{best[1]}", f"{alone.seconds / best[0]:.1f}", f"{pack_size(key, 'auto')}"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cuda:0", help="cuda:0, or cpu")
    arguments.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    arguments.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 32, 128])
    arguments.add_argument("--budget-seconds", type=float, default=120)
    args = arguments.parse_args()
    deadline = time.monotonic() + args.budget_seconds
    torch.set_num_threads(1)
    bench = open_bench(args.device)
    bench.packed(16, 2)  # first calls load libraries
    columns = ["width", "alone", *(f"pack of {n}" for n in args.lanes), "best", "gain", "table has"]
    say(f"Milliseconds per trial and epoch on {args.device}, by padded width:\n")
    say(f"| {' | '.join(columns)} |")
    say("|---" * len(columns) + "|")
    for width in args.widths:
        say(f"| {' | '.join(row(bench, width, args.lanes, deadline))} |")


def say(text: str) -> None:
    """A line at once, so that what was measured is there if the rest is cut off."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
