"""What earlier studies and likely values gain, and what wrong ones cost: trials to a value.

Objectives are closed-form functions, so that a trial costs the sampler's time alone. A pair of
related studies is one function twice: its optimum moved by up to `SHIFT` of each range, its values
scaled and moved, as by another data set. Called as

    python experiments/024-steering/warm_start.py warm|likely [n_seeds]
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from optuna.storages import InMemoryStorage

from automl.config import StudyConfig
from automl.search.earlier_trials import EarlierTrials, collect_earlier
from automl.search.pruners.none import NoPruner
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.search.storage import OpenStorage, silence_optuna
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome, Params

sys.path.append(str(Path(__file__).resolve().parent.parent / "022-search"))
from problems import hartmann

N_COLD = 50
N_MAX = 100
SHIFT = 0.05
"""The farthest that the optimum of a related study lies off, as a share of each range."""


@dataclass(frozen=True)
class Function:
    """A function to minimise over units 0 … 1, and the space that its params come from."""

    name: str
    space: dict[str, Any]
    value: Callable[[Sequence[float]], float]

    def units(self, params: Params) -> list[float]:
        """Return the params as positions in their ranges; a choice as its index."""
        found = []
        for name, entry in self.space.items():
            value: Any = params[name]
            if "choices" in entry:
                found.append(entry["choices"].index(value) / (len(entry["choices"]) - 1))
            elif entry.get("log"):
                low, high = math.log(entry["low"]), math.log(entry["high"])
                found.append((math.log(value) - low) / (high - low))
            else:
                found.append((value - entry["low"]) / (entry["high"] - entry["low"]))
        return found


def linear(*names: str) -> dict[str, Any]:
    return {name: {"low": 0.0, "high": 1.0} for name in names}


TUNING: dict[str, Any] = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "width": {"low": 8, "high": 512, "log": True},
    "decay": {"low": 1e-6, "high": 1e-1, "log": True},
    "dropout": {"low": 0.0, "high": 0.7},
    "optimizer": {"choices": ["sgd", "adam", "lion"]},
}


def sphere(u: Sequence[float]) -> float:
    return sum((x - 0.4) ** 2 for x in u)


def valley(u: Sequence[float]) -> float:
    x, y = 4 * u[0] - 2, 4 * u[1] - 1
    return math.log1p(100 * (y - x * x) ** 2 + (1 - x) ** 2)


def branin(u: Sequence[float]) -> float:
    x, y = 15 * u[0] - 5, 15 * u[1]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def ackley(u: Sequence[float]) -> float:
    x = [10 * (v - 0.6) for v in u]
    n = len(x)
    root = math.sqrt(sum(v * v for v in x) / n)
    waves = sum(math.cos(2 * math.pi * v) for v in x) / n
    return -20 * math.exp(-0.2 * root) - math.exp(waves) + 20 + math.e


def rastrigin(u: Sequence[float]) -> float:
    x = [4 * (v - 0.45) for v in u]
    return sum(v * v - 3 * math.cos(2 * math.pi * v) + 3 for v in x)


def steps(u: Sequence[float]) -> float:
    return sum(math.floor(12 * abs(v - 0.7)) for v in u) + 0.1 * sphere(u)


def training(u: Sequence[float]) -> float:
    """Return a loss like that of a network: it diverges at large rates, and adam wants small."""
    lr, width, decay, dropout, optimizer = u
    best_lr = 0.65 - 0.25 * (optimizer == 0.5) - 0.35 * (optimizer == 1.0)
    cliff = 3 * max(0.0, lr - best_lr - 0.15)
    fit = 2 * (lr - best_lr) ** 2 + 0.5 * (1 - width) ** 2 * 0.3
    return fit + cliff + 0.4 * (decay - 0.5) ** 2 + 0.6 * (dropout - 0.3) ** 2 + 0.05 * optimizer


def weighted(u: Sequence[float]) -> float:
    return sum(4.0**-i * abs(x - 0.55) for i, x in enumerate(u))


def boosting(u: Sequence[float]) -> float:
    """Return a loss in which rate and number of trees make up for each other."""
    rate, trees, depth, rows = u
    return (rate + trees - 1.1) ** 2 + 0.3 * (depth - 0.45) ** 2 + 0.1 * (rows - 0.8) ** 2


FUNCTIONS = (
    Function("sphere, 5 params", linear(*"abcde"), sphere),
    Function("Rosenbrock", linear("a", "b"), valley),
    Function("Branin", linear("a", "b"), branin),
    Function("Ackley, 4 params", linear(*"abcd"), ackley),
    Function("Hartmann, 6 params", linear(*"abcdef"), lambda u: hartmann(np.array(u))),
    Function("Rastrigin, 3 params", linear(*"abc"), rastrigin),
    Function("steps, 6 params", linear(*"abcdef"), steps),
    Function("training", TUNING, training),
    Function("weighted, 8 params", linear(*"abcdefgh"), weighted),
    Function("boosting", linear("rate", "trees", "depth", "rows"), boosting),
)


def related(function: Function, seed: int) -> Callable[[Params], float]:
    """Return the function with its optimum, scale and level moved."""
    rng = np.random.default_rng(seed)
    moves = rng.uniform(-SHIFT, SHIFT, len(function.space))
    for place, entry in enumerate(function.space.values()):
        moves[place] *= "choices" not in entry
    scale, level = float(np.exp(rng.normal())), float(rng.normal())

    def value(params: Params) -> float:
        units = [u + float(m) for u, m in zip(function.units(params), moves, strict=True)]
        return level + scale * function.value(units)

    return value


def run(
    objective: Callable[[Params], float],
    space: dict[str, Any],
    seed: int,
    *,
    n_trials: int = N_COLD,
    target: float = -math.inf,
    earlier: EarlierTrials | None = None,
) -> list[tuple[Params, float]]:
    """Return the trials of a study, which ends when one has reached `target`."""

    def nothing() -> None:
        """Do nothing: a storage in memory has nothing to flush."""

    parsed, found = parse_space(space), list[tuple[Params, float]]()
    identity = StudyIdentity({}, {})
    read = EarlierTrials if earlier is None else lambda: earlier
    rules = StudyRules(parsed, TPE(), NoPruner(), identity, read_earlier=read)
    opened = OpenStorage(InMemoryStorage(), "memory", nothing, nothing)
    study = Study.open(StudyConfig(name="toy", seed=seed), rules, Path(), opened)
    while len(found) < n_trials:
        trial = study.ask()
        assert trial is not None
        value = objective(trial.params)
        found.append((trial.params, value))
        study.tell(trial.number, FinishedOutcome(trial.number, float(trial.number), value))
        if value <= target:
            break
    return found


def n_until(found: Sequence[tuple[Params, float]], target: float) -> int:
    """Return the number of trials until one has the target; one more than all if none has."""
    return next((n for n, (_, v) in enumerate(found, 1) if v <= target), len(found) + 1)


def measure_warm(function: Function, n_seeds: int) -> list[int]:
    """Return for each seed the trials that a warm start takes to the value of a cold one at 50."""
    colds, warms = [], []
    objective = related(function, 1)
    for seed in range(n_seeds):
        cold = run(objective, function.space, seed)
        before = run(related(function, 2), function.space, seed + 1000)
        colds.append(min(value for _, value in cold))
        ranking = sorted(before, key=lambda trial: trial[1])
        space = parse_space(function.space)
        earlier = collect_earlier([[(p, None) for p, _ in ranking]], space, seed)
        warms.append(earlier)
    target = statistics.median(colds)
    return [
        n_until(run(objective, function.space, s, n_trials=N_MAX, target=target, earlier=e), target)
        for s, e in enumerate(warms)
    ]


def measure_likely(function: Function, n_seeds: int, share: float) -> tuple[list[int], list[int]]:
    """Return for each seed the trials to the value of a study without likely values at 50: without
    them, and with values that lie off the optimum by `share` of each range."""
    objective = related(function, 1)
    # Other seeds than those that are measured: the target would fit them too well.
    long = [run(objective, function.space, seed + 500) for seed in range(n_seeds)]
    target = statistics.median(min(value for _, value in found) for found in long)
    best = min((trial for found in long for trial in found), key=lambda trial: trial[1])[0]
    space = parse_space(function.space)
    guess: dict[str, Any] = {}
    for param, unit in zip(space.params, function.units(best), strict=True):
        away = unit + share if unit < 0.5 else unit - share
        guess[param.name] = param.domain.at(min(max(away, 0.0), 1.0) if share else unit)
    entries = {n: {**entry, "likely": guess[n]} for n, entry in function.space.items()}

    def counts(searched: dict[str, Any]) -> list[int]:
        runs = (run(objective, searched, s, n_trials=N_MAX, target=target) for s in range(n_seeds))
        return [n_until(found, target) for found in runs]

    return counts(function.space), counts(entries)


def main_likely(n_seeds: int) -> None:
    for what, share in (("wrong", 0.5), ("right", 0.1)):
        ratios = []
        for function in FUNCTIONS:
            without, guessed = measure_likely(function, n_seeds, share)
            ratios.append(statistics.median(guessed) / statistics.median(without))
            sys.stdout.write(
                f"{what} {function.name:20} without {statistics.median(without)} with "
                f"{statistics.median(guessed)} ratio {ratios[-1]:.2f}\n"
            )
            sys.stdout.flush()
        sys.stdout.write(f"{what}: median of the ratios {statistics.median(ratios):.2f}\n")


def main() -> None:
    what, n_seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11
    silence_optuna()
    if what == "likely":
        main_likely(n_seeds)
        return
    medians = []
    for function in FUNCTIONS:
        counts = measure_warm(function, n_seeds)
        medians.append(statistics.median(counts))
        line = f"{function.name:20} median {medians[-1]:5.1f}  {sorted(counts)}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    summary = f"{what}: median of the pairs {statistics.median(medians)}, largest {max(medians)}"
    sys.stdout.write(summary + "\n")


if __name__ == "__main__":
    main()
