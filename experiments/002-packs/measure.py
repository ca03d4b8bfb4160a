"""Times trials trained one at a time and in packs, on one core, training only: no files, no events.

Both are timed in CPU time of this thread, set by set in turn, so that other work on the machine
disturbs both alike; it still slows arithmetic down (caches, shared cores), packs more than others.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch

from automl.config import (
    DataConfig,
    ObjectiveConfig,
    Precision,
    Task,
    TrainingConfig,
)
from automl.data.features import n_features
from automl.data.load import load_dataset
from automl.models.families.mlp.family import MLPFamily, MLPKey, MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import pack_size
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataOnDevices, DataTensors
from automl.models.networks.trainer import DivergedError, NetworkTrainer, TrainingProblem
from automl.objectives.training_plan import TrainingPlan
from automl.trial import Direction

PLAN = TrainingPlan(
    ObjectiveConfig(), DataConfig(), MLPFamily(), TrainingConfig(), "val_loss", Direction.minimize
)
N_EPOCHS = PLAN.training.n_epochs


@dataclass(frozen=True)
class Mix:
    """Trials that are drawn and measured together."""

    name: str
    widths: tuple[int, int] = (8, 32)
    optimizer: str = "sgd"
    dropout: float = 0.0


MIXES = (
    Mix("width 8-32"),
    Mix("width 33-64", widths=(33, 64)),
    Mix("width 65-128", widths=(65, 128)),
    Mix("width 8-32, adam", optimizer="adam"),
    Mix("width 8-32, dropout 0.2", dropout=0.2),
)


def draw(mix: Mix, n_trials: int) -> list[MLPParams]:
    """Width and lr by their logarithm."""
    generator = random.Random(0)
    lrs = (1e-3, 0.5) if mix.optimizer == "sgd" else (1e-4, 1e-2)

    def log_uniform(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    return [
        MLPParams(
            depth=generator.randint(2, 6),
            width=round(log_uniform(*mix.widths)),
            lr=log_uniform(*lrs),
            batch_size=generator.choice((50, 100, 200)),
            optimizer=mix.optimizer,
            momentum=0.0,
            dropout=mix.dropout,
        )
        for _ in range(n_trials)
    ]


def train_alone(
    problem: TrainingProblem, data: DataTensors, trials: Mapping[int, MLPParams]
) -> None:
    for number, params in trials.items():
        trainer = NetworkTrainer(problem, params, data, device="cpu", seed=number)
        try:
            for epoch in range(N_EPOCHS):
                trainer.run_epoch(epoch)
        except DivergedError:
            continue


def train_packed(
    problem: TrainingProblem,
    data: DataTensors,
    trials: Mapping[int, MLPParams],
    key: MLPKey,
    n_lanes: int,
) -> None:
    waiting = list(trials.items())
    trainer = MLPPackTrainer(problem, key.batch_size, key.width, data, device="cpu")
    epochs: dict[int, int] = {}
    while waiting or epochs:
        while waiting and len(epochs) < n_lanes:
            number, params = waiting.pop(0)
            epochs[number] = trainer.add(number, params, number, None)
        for number, ended in trainer.run_epoch().items():
            epochs[number] += 1
            if epochs[number] == N_EPOCHS or isinstance(ended, DivergedError):
                trainer.remove(number)
                del epochs[number]


def seconds(action: Callable[[], None]) -> float:
    begun = time.thread_time()
    action()
    return time.thread_time() - begun


def measure(
    problem: TrainingProblem, data: DataTensors, trials: Sequence[MLPParams], n_lanes: int | None
) -> dict[MLPKey, tuple[int, float, float]]:
    """By key: trials, and the seconds that they took alone and packed."""
    by_key: dict[MLPKey, dict[int, MLPParams]] = {}
    for number, params in enumerate(trials):
        key = PLAN.pack_key(asdict(params), on_host=True)
        assert isinstance(key, MLPKey)
        by_key.setdefault(key, {})[number] = params
    found = {}
    for key, some in sorted(by_key.items(), key=lambda item: (item[0].width, item[0].batch_size)):
        lanes = n_lanes or max(pack_size(key, "auto"), 8)
        alone = seconds(partial(train_alone, problem, data, some))
        packed = seconds(partial(train_packed, problem, data, some, key, lanes))
        found[key] = (len(some), alone, packed)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--trials", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--lanes", type=int, nargs="*", help="instead of the table's")
    arguments.add_argument("--only", nargs="*", default=[mix.name for mix in MIXES])
    args = arguments.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset(PLAN.data)
    problem = TrainingProblem(
        Task.classification,
        n_features(dataset.columns),
        2,
        1.0,
        MLPFamily(),
        SIDE,
        Precision.float32,
    )
    data = DataOnDevices(dataset).tensors("cpu", problem.dtype)
    measure(problem, data, draw(MIXES[0], 8), None)  # first calls load libraries
    for mix in MIXES:
        for n_lanes in args.lanes or [None]:
            if mix.name in args.only:
                trials = draw(mix, args.trials)
                rounds = [measure(problem, data, trials, n_lanes) for _ in range(args.rounds)]
                report(mix.name, n_lanes, rounds)


def report(
    name: str, n_lanes: int | None, rounds: Sequence[Mapping[MLPKey, tuple[int, float, float]]]
) -> None:
    lines = [f"{name}, lanes: {n_lanes or 'by the table'}"]
    for key in rounds[0]:
        n, alone, packed = (statistics.median(found[key][i] for found in rounds) for i in range(3))
        lines.append(
            f"    width {key.width:3}, batch {key.batch_size:3}: {n:3.0f} trials, ms a trial "
            f"{1000 * alone / n:6.1f} alone {1000 * packed / n:6.1f} packed, {alone / packed:4.1f}"
        )
    sums = [[sum(found[key][i] for key in found) for i in (1, 2)] for found in rounds]
    ratios = [alone / packed for alone, packed in sums]
    alone, packed = (statistics.median(column) for column in zip(*sums, strict=True))
    lines.append(
        f"    all: {alone:.2f} s alone, {packed:.2f} s packed; "
        f"ratio {statistics.median(ratios):.1f} "
        f"({min(ratios):.1f} to {max(ratios):.1f} over {len(ratios)} rounds)"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
