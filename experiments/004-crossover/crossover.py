"""Seconds to train one network of each size: CPU with one thread and more, CPU in packs, and GPU.

After P. Xu, When to use GPU for training? (2019): 1,000 points of the disc, hidden layers of 2, 4,
8, … units, 100 epochs of batches of 100, SGD. Trained by this project's own trainers, without the
rest of a sweep: no process, no events, no files. By wall clock; an epoch ends with a wait for its
device. The seconds are those of the median epoch, times the epochs, and in brackets the CPU seconds
of the process: where other work shares the cores, those say more of a single thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch

from automl.config import DataConfig, Precision, Task, TrainingConfig
from automl.data.features import n_features
from automl.data.load import load_dataset
from automl.models.families.mlp.family import Growth, MLPFamily, MLPKey, MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataOnDevices, DataTensors
from automl.models.networks.trainer import DivergedError, NetworkTrainer, TrainingProblem

FAMILY = MLPFamily(growth=Growth.doubling)
TRAINING = TrainingConfig()
_LR = 0.01


@dataclass(frozen=True)
class Way:
    """How one network is trained: a column of the table."""

    device: str
    n_threads: int = 1
    packed: bool = False

    def __str__(self) -> str:
        place = "CPU" if self.device == "cpu" else "GPU"
        if self.packed:
            return f"{place}, packs"
        threads = f", {self.n_threads} thread{'s' if self.n_threads > 1 else ''}"
        return place + (threads if self.device == "cpu" else "")


@dataclass(frozen=True)
class Cell:
    """One size, trained in one way."""

    depth: int
    n_weights: int
    way: str
    n_lanes: int
    """Networks trained at once; 1: not in a pack."""
    n_timed: int
    """Epochs that were timed."""
    seconds: float
    """All epochs of one network, by the median of those timed."""
    fastest_seconds: float
    """The same by the fastest of those timed."""
    cpu_seconds: float
    """The same of CPU time, of all threads of the process, by the median."""


@dataclass(frozen=True)
class Epoch:
    """What one took."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Runner:
    """One way of training networks of one size, ready to train."""

    way: Way
    depth: int
    n_lanes: int
    run_epoch: Callable[[int], object]

    @classmethod
    def of(cls, way: Way, depth: int) -> Runner | None:
        """None: the product trains no packs of this size."""
        params = MLPParams(depth=depth, lr=_LR, batch_size=100, optimizer="sgd", momentum=0.0)
        key = FAMILY.pack_key(asdict(params), TRAINING, on_host=way.device == "cpu")
        n_lanes = key.n_lanes if way.packed and key is not None else 1
        if way.packed and n_lanes == 1:
            return None
        problem, data = the_disc(way.device)
        if way.packed:
            run_epoch = packed(problem, params, data, way.device, n_lanes)
            return cls(way, depth, n_lanes, run_epoch)
        trainer = NetworkTrainer(problem, params, data, device=way.device, seed=0)
        return cls(way, depth, n_lanes, trainer.run_epoch)

    def time(self, epoch: int) -> Epoch:
        """Train one; its sums are read at its end, which waits for a GPU."""
        torch.set_num_threads(self.way.n_threads)
        begun, cpu_begun = time.perf_counter(), time.process_time()
        self.run_epoch(epoch)
        return Epoch(time.perf_counter() - begun, time.process_time() - cpu_begun)

    def cell(self, epochs: Sequence[Epoch], n_epochs: int) -> Cell:
        """What was timed, for so many epochs of one network."""
        per_network = n_epochs / self.n_lanes
        return Cell(
            depth=self.depth,
            n_weights=n_weights(self.depth),
            way=str(self.way),
            n_lanes=self.n_lanes,
            n_timed=len(epochs),
            seconds=statistics.median(e.seconds for e in epochs) * per_network,
            fastest_seconds=min(e.seconds for e in epochs) * per_network,
            cpu_seconds=statistics.median(e.cpu_seconds for e in epochs) * per_network,
        )


def measure(ways: Sequence[Way], depth: int, n_epochs: int, most_seconds: float) -> list[Cell]:
    """One size in ways of one device, an epoch of each in turn: what else the machine does disturbs
    all alike. The first epoch, which loads libraries, is not timed; none starts after
    `most_seconds`."""
    runners = [runner for way in ways if (runner := Runner.of(way, depth)) is not None]
    epochs: list[list[Epoch]] = [[] for _ in runners]
    for runner in runners:
        runner.time(0)
    deadline = time.perf_counter() + most_seconds
    for epoch in range(1, n_epochs + 1):
        for runner, timed in zip(runners, epochs, strict=True):
            timed.append(runner.time(epoch))
        if time.perf_counter() > deadline:
            break
    return [runner.cell(timed, n_epochs) for runner, timed in zip(runners, epochs, strict=True)]


def the_disc(device: str) -> tuple[TrainingProblem, DataTensors]:
    """1,000 points to train on and, as in any sweep, 500 to look at after an epoch."""
    dataset = load_dataset(DataConfig(n_train=1000, n_validation=500))
    n_classes = len(dataset.classes)
    n_inputs = n_features(dataset.columns)
    problem = TrainingProblem(
        Task.classification, n_inputs, n_classes, 1.0, FAMILY, SIDE, Precision.float32
    )
    return problem, DataOnDevices(dataset).tensors(device, problem.dtype)


def n_weights(depth: int) -> int:
    """Weights and biases; 2 inputs, 2 outputs."""
    widths = (2, *MLPParams(depth=depth).hidden_widths(Growth.doubling), 2)
    return sum((a + 1) * b for a, b in pairwise(widths))


def packed(
    problem: TrainingProblem, params: MLPParams, data: DataTensors, device: str, n_lanes: int
) -> Callable[[int], None]:
    """An epoch of a full pack."""
    key = FAMILY.pack_key(asdict(params), TRAINING, on_host=device == "cpu")
    assert isinstance(key, MLPKey)
    pack = MLPPackTrainer(problem, key.batch_size, key.width, data, device=device)
    for number in range(n_lanes):
        pack.add(number, params, number, None)

    def run_epoch(_: int) -> None:
        for ended in pack.run_epoch().values():
            if isinstance(ended, DivergedError):
                raise ended

    return run_epoch


def faster_from(slow: Mapping[int, float], fast: Mapping[int, float]) -> int | None:
    """The least depth from which on, at all depths that both have, `fast` takes less time."""
    found = None
    for depth in sorted(slow.keys() & fast.keys()):
        if fast[depth] >= slow[depth]:
            found = None
        elif found is None:
            found = depth
    return found


def statements(
    cells: Sequence[Cell], ways: Sequence[Way], seconds_of: Callable[[Cell], float]
) -> Iterator[str]:
    """From which size on one way beats another, for the pairs that were asked about."""
    by_way = {way: {c.depth: seconds_of(c) for c in cells if c.way == str(way)} for way in ways}
    on_cpu, on_gpu = (
        {way: found for way, found in by_way.items() if (way.device == "cpu") is cpu}
        for cpu in (True, False)
    )
    one, in_packs = alone(on_cpu), with_packs(on_cpu)
    for way, found in on_cpu.items():
        if way.n_threads > 1:
            yield said(f"{way.n_threads} threads of the CPU beat one", one, found)
        elif way.packed:
            yield said("one network alone beats a pack's share", found, one)
    if not on_gpu:
        yield "GPU against CPU: not measured, there was none."
        return
    gpu, gpu_in_packs = alone(on_gpu), with_packs(on_gpu)
    for way, found in on_cpu.items():
        if not way.packed:
            yield said(f"the GPU beats {way}", found, gpu)
    yield said("the GPU beats the CPU with packs", in_packs, gpu)
    yield said("the GPU with packs beats CPU, 1 thread", one, gpu_in_packs)
    yield said("with packs on both, the GPU beats the CPU", in_packs, gpu_in_packs)


def alone(by_way: Mapping[Way, Mapping[int, float]]) -> dict[int, float]:
    """Seconds by depth of the way without packs and, on a CPU, with one thread."""
    return {
        depth: seconds
        for way, found in by_way.items()
        if not way.packed and way.n_threads == 1
        for depth, seconds in found.items()
    }


def with_packs(by_way: Mapping[Way, Mapping[int, float]]) -> dict[int, float]:
    """The same with packs where the product trains them."""
    packs = (found for way, found in by_way.items() if way.packed)
    return alone(by_way) | {depth: s for found in packs for depth, s in found.items()}


def said(what: str, slow: Mapping[int, float], fast: Mapping[int, float]) -> str:
    """A line of the answer."""
    depth = faster_from(slow, fast)
    if depth is None:
        return f"{what}: not up to {max(slow.keys() & fast.keys(), default=0)} hidden layers."
    return f"{what}: from {depth} hidden layers, {n_weights(depth):,} parameters."


def table(cells: Sequence[Cell], ways: Sequence[Way], depths: Sequence[int]) -> Iterator[str]:
    """A line per size; seconds, (of CPU time), and the lanes of packs."""
    names = [str(way) for way in ways]
    if not any(way.device != "cpu" for way in ways):
        names.append("GPU")
    yield f"| hidden layers | parameters | {' | '.join(names)} |"
    yield "|---" * (2 + len(names)) + "|"
    found = {(cell.depth, cell.way): cell for cell in cells}
    for depth in depths:
        row = [in_a_cell(found.get((depth, name))) for name in names]
        if names[-1] == "GPU":
            row[-1] = "no GPU here"
        yield f"| {depth} | {n_weights(depth):,} | {' | '.join(row)} |"


def in_a_cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    lanes = f", {cell.n_lanes} lanes" if cell.n_lanes > 1 else ""
    return f"{in_digits(cell.seconds)} ({in_digits(cell.cpu_seconds)}){lanes}"


def in_digits(seconds: float) -> str:
    """Two digits that count, and all before the point."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def ways_of(device: str, threads: Sequence[int]) -> list[Way]:
    """The columns: the CPU always, a GPU where there is one."""
    host = [*(Way("cpu", n) for n in threads), Way("cpu", packed=True)]
    return host if device == "cpu" else [*host, Way(device), Way(device, packed=True)]


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--depths", type=int, nargs="+", default=list(range(2, 13)))
    arguments.add_argument("--epochs", type=int, default=100)
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--device", default="auto", help="auto, cpu, or a GPU as cuda:0")
    arguments.add_argument(
        "--size-seconds",
        type=float,
        default=120,
        help="of a size and device; no epoch starts after",
    )
    arguments.add_argument("--json", type=Path, help="file for the raw figures")
    arguments.add_argument(
        "--quick", action="store_true", help="two small sizes, two epochs, one thread"
    )
    args = arguments.parse_args(words)
    if args.epochs < 1:
        arguments.error(f"--epochs {args.epochs}: at least 1.")
    depths, n_epochs, threads = sorted(args.depths), args.epochs, args.threads
    if args.quick:
        depths, n_epochs, threads = [2, 3], 2, [1]
    device = args.device
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    ways, cells = ways_of(device, threads), list[Cell]()
    gpu = "no GPU" if device == "cpu" else torch.cuda.get_device_name(device)
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {gpu}; torch {torch.__version__}")
    for depth in depths:
        for on_cpu in (True, False):
            some = [way for way in ways if (way.device == "cpu") is on_cpu]
            cells += measure(some, depth, n_epochs, args.size_seconds)
        found = "; ".join(f"{cell.way} {in_a_cell(cell)}" for cell in cells if cell.depth == depth)
        say(f"{depth} layers: {found}; load {os.getloadavg()[0]:.1f}")
        if args.json is not None:  # after each size, so that it may be cut short
            args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    for line in table(cells, ways, depths):
        say(line)
    for title, seconds_of in (("median", by_median), ("fastest", by_fastest)):
        say(f"\nBy the {title} epoch:")
        for line in statements(cells, ways, seconds_of):
            say(f"- {line}")


def by_median(cell: Cell) -> float:
    return cell.seconds


def by_fastest(cell: Cell) -> float:
    return cell.fastest_seconds


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
