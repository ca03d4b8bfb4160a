"""How many trials run out of memory where half of the space lies beyond it? See README.md, Memory.

Nothing is trained: memory is arithmetic on four of 14 params, as of a small GPT, and half of the
space's volume wants more than there is. The loss is a bowl. Studies and samplers are the product's;
Optuna's own are told the worst loss for a trial that ran out, as in arXiv 2603.24647.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from searching import make_sampler

from automl.admission.refusals import excess_after_out_of_memory
from automl.config import StudyConfig
from automl.search.domains import RangeDomain
from automl.search.optuna_trials import optuna_distributions
from automl.search.pruners.none import NoPruner
from automl.search.search_space import parse_space
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome, Params, TooLargeOutcome, TrialOutcome

RESULTS = Path(__file__).with_name("memory.json")
N_TRIALS, WORST = 200, 100.0
MIB = 2**20
SPACE = parse_space(
    {
        "depth": {"low": 2, "high": 24},
        "width": {"low": 128, "high": 2048, "log": True},
        "batch_size": {"low": 4, "high": 256, "log": True},
        "head_dim": {"low": 32, "high": 256, "log": True},
        **{f"x{i}": {"low": 0.0, "high": 1.0} for i in range(10)},
    }
)
DOMAINS = {p.name: p.domain for p in SPACE.params if isinstance(p.domain, RangeDomain)}
BEST: Mapping[str, float] = {"within": 0.35, "at the wall": 0.5, "beyond": 1.0}
"""Where the four params lie that take memory, from 0 to 1, if the loss is least."""


def memory_bytes(params: Params) -> int:
    """Return the memory of a GPT trained by Adam: four times its weights, and its activations."""
    depth, width, batch, head = (float(params[n] or 0) for n in [*DOMAINS][:4])
    weights = 12 * depth * width**2
    activations = depth * batch * 512 * (16 * width + 512 * width / head)
    return int(256 * MIB + 4 * (4 * weights + activations))


@functools.cache
def room_bytes() -> int:
    """Return what half of the space's volume wants more than."""
    chance = random.Random(0)
    draws = (
        {name: domain.at(chance.random()) for name, domain in DOMAINS.items()}
        for _ in range(20_001)
    )
    return int(statistics.median(map(memory_bytes, draws)))


def loss(params: Params, best: float) -> float:
    at = {name: domain.share(float(params[name] or 0)) for name, domain in DOMAINS.items()}
    names = [*DOMAINS]
    return sum((at[name] - best) ** 2 for name in names[:4]) + 0.3 * sum(
        (at[name] - 0.5) ** 2 for name in names[4:]
    )


@dataclass(frozen=True)
class Run:
    """One study."""

    ran_out: float
    """The share of its trials that ran out of memory."""
    ran_out_after_20: float
    best: float


OPTUNAS: Mapping[str, Callable[[int], BaseSampler]] = {
    "optuna-tpe": lambda seed: TPESampler(seed=seed),
    "optuna-cmaes": lambda seed: CmaEsSampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}
SETTINGS = (*OPTUNAS, "tpe/predicted", "tpe/unknown")
AskedParams: TypeAlias = Generator[Params, tuple[float, int | None], None]
"""Yields the params of one trial after another, and is sent its value, with the memory that a trial
needs which ran out."""


def run(setting: str, where: str, seed: int) -> Run:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asking = ask_optuna(setting, seed) if setting in OPTUNAS else ask_ours(setting, seed)
    ran_out, losses, params = list[bool](), list[float](), next(asking)
    while len(losses) < N_TRIALS:
        needed = memory_bytes(params)
        ran_out.append(needed > room_bytes())
        losses.append(WORST if ran_out[-1] else loss(params, BEST[where]))
        params = asking.send((losses[-1], needed if ran_out[-1] else None))
    asking.close()
    return Run(statistics.fmean(ran_out), statistics.fmean(ran_out[20:]), min(losses))


def ask_optuna(setting: str, seed: int) -> AskedParams:
    study = optuna.create_study(sampler=OPTUNAS[setting](seed))
    while True:
        trial = study.ask(optuna_distributions(SPACE))
        value, _ = yield trial.params
        study.tell(trial, value)


def ask_ours(setting: str, seed: int) -> AskedParams:
    sampler, _, known = setting.partition("/")
    rules = StudyRules(SPACE, make_sampler(sampler), NoPruner(), StudyIdentity({}, {}))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        study = Study.open(StudyConfig(name="memory", seed=seed), rules, Path(folder))
        while (asked := study.ask()) is not None:
            value, needed = yield asked.params
            outcome: TrialOutcome = FinishedOutcome(asked.number, time.time(), value)
            if needed is not None:
                predicted = needed if known == "predicted" else None
                excess = excess_after_out_of_memory(0, predicted, room_bytes())
                outcome = TooLargeOutcome(asked.number, time.time(), "ran out", *excess)
            study.tell(asked.number, outcome)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("settings", nargs="*", default=SETTINGS)
    arguments.add_argument("--seeds", type=int, default=5)
    args = arguments.parse_args()
    jobs = list(itertools.product(args.settings, BEST, range(args.seeds)))
    with ProcessPoolExecutor(2) as pool:
        runs = dict(zip(jobs, pool.map(run, *zip(*jobs, strict=True)), strict=True))
    rows = [[*job, *asdict(found).values()] for job, found in runs.items()]
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    for setting, where in itertools.product(args.settings, BEST):
        mine = [runs[setting, where, seed] for seed in range(args.seeds)]
        cells = [setting, where]
        cells += [f"{statistics.fmean(r.ran_out for r in mine):.1%}"]
        cells += [f"{statistics.fmean(r.ran_out_after_20 for r in mine):.1%}"]
        cells += [f"{statistics.median(r.best for r in mine):.3f}"]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
