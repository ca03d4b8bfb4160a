"""Which sampler finds the best value with the same number of trials? See README.md.

Runs whole studies with the project's own `Study`, and with Optuna alone for its own samplers. Each
trial is simulated: its value is that of a function, and costs nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from problems import CLOSED, RECORDED, Problem, problem

from automl.config import StudyConfig
from automl.search.optuna_trials import optuna_distributions
from automl.search.pruners.none import NoPruner
from automl.search.samplers import samplers
from automl.search.samplers.sampler import Sampler
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome

RESULTS = Path(__file__).with_name("results.json")
MARKS = (25, 50, 100)
"""The best value is compared after so many trials."""
PACK = 32
"""Lanes of a pack, each of which takes another trial when its own has ended."""


def autosampler(problem: Problem, seed: int) -> BaseSampler:
    """Return what OptunaHub's AutoSampler takes for a space, up to 250 trials."""
    domains = optuna_distributions(problem.space).values()
    has_choice = any(isinstance(d, optuna.distributions.CategoricalDistribution) for d in domains)
    if has_choice or any(param.when for param in problem.space.params):
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)
    return GPSampler(seed=seed)


OPTUNAS: Mapping[str, Callable[[Problem, int], BaseSampler]] = {
    "optuna-tpe": lambda problem, seed: TPESampler(seed=seed),
    "optuna-gp": lambda problem, seed: GPSampler(seed=seed),
    "optuna-cmaes": lambda problem, seed: CmaEsSampler(seed=seed),
    "autosampler": autosampler,
    "random": lambda problem, seed: RandomSampler(seed=seed),
}


@dataclass(frozen=True)
class Job:
    """One study to run; `sampler` may have settings, as in `gp:n_startup_trials=20`."""

    problem: str
    sampler: str
    n_at_once: int
    """Trials that pend at each ask; 0: as many as the sampler allows, at most a pack."""
    seed: int
    n_trials: int

    @property
    def setting(self) -> str:
        return self.sampler if self.n_at_once == 1 else f"{self.sampler}@{self.n_at_once or 'rule'}"


@dataclass(frozen=True)
class Measured:
    """One study that was run."""

    problem: str
    setting: str
    seed: int
    best_after: list[float]
    """The best value after each of the numbers of trials in MARKS, then after all."""
    full_from: int
    """The first trial from which on a pack was always full; the number of trials if never."""
    ask_seconds: float
    """Mean time of an ask."""


def run_study(job: Job, studies: Path) -> Measured:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known = problem(job.problem, studies)
    run = run_optunas if job.sampler in OPTUNAS else run_ours
    values, n_pending, seconds = run(job, known)
    best = [min(values[:n]) for n in (*MARKS, None)]
    short = [i for i, n in enumerate(n_pending) if n < min(PACK, job.n_trials - i)]
    full_from = max(short, default=-1) + 1
    return Measured(job.problem, job.setting, job.seed, best, full_from, seconds / job.n_trials)


def run_optunas(job: Job, known: Problem) -> tuple[list[float], list[int], float]:
    study = optuna.create_study(sampler=OPTUNAS[job.sampler](known, job.seed))
    distributions = optuna_distributions(known.space)
    seconds, values = 0.0, []
    pending: deque[tuple[optuna.Trial, float]] = deque()
    for number in range(job.n_trials):
        begun = time.perf_counter()
        trial = study.ask()
        params = known.space.fill(
            lambda param: trial._suggest(param.name, distributions[param.name])  # noqa: B023
        )
        seconds += time.perf_counter() - begun
        pending.append((trial, known.value(params)))
        while pending and (len(pending) >= job.n_at_once or number == job.n_trials - 1):
            told, value = pending.popleft()
            study.tell(told, value)
            values.append(value)
    return values, [job.n_at_once] * job.n_trials, seconds


def make_sampler(words: str) -> Sampler:
    """Return the sampler that `NAME` or `NAME:KEY=NUMBER,…` names."""
    name, _, settings = words.partition(":")
    pairs = [pair.split("=") for pair in settings.split(",") if pair]
    return samplers()[name](
        **{key: json.loads(value) if value[0].isdigit() else value for key, value in pairs}
    )


def run_ours(job: Job, known: Problem) -> tuple[list[float], list[int], float]:
    sampler = make_sampler(job.sampler).decide(None).sampler
    choice = "family" if job.problem == "families" else None
    rules = StudyRules(known.space, sampler, NoPruner(), StudyIdentity({}, {}), choice=choice)
    seconds, values, n_pending = 0.0, list[float](), list[int]()
    pending: deque[tuple[int, float]] = deque()
    with tempfile.TemporaryDirectory(prefix="searching-", dir="/dev/shm") as folder:
        study = Study.open(StudyConfig(name="search", seed=job.seed), rules, Path(folder))
        while len(values) < job.n_trials:
            most = job.n_at_once or min(PACK, sampler.n_may_pend(len(values)) or PACK)
            while len(pending) < most and study.n_asked < job.n_trials:
                begun = time.perf_counter()
                asked = study.ask()
                seconds += time.perf_counter() - begun
                assert asked is not None, "only a grid is ever exhausted"
                pending.append((asked.number, known.value(asked.params)))
            n_pending.append(len(pending))
            number, value = pending.popleft()
            study.tell(number, FinishedOutcome(number, time.time(), value))
            values.append(value)
        study.close()
    return values, n_pending, seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("settings", nargs="*", help="SAMPLER or SAMPLER@N_AT_ONCE or SAMPLER@0")
    arguments.add_argument("--problems", nargs="*", default=[*CLOSED, *RECORDED])
    arguments.add_argument("--seeds", type=int, default=10, help="studies of each setting")
    arguments.add_argument("--trials", type=int, default=100, help="of each study")
    arguments.add_argument("--studies", type=Path, default=Path("studies"))
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--json", type=Path, default=RESULTS, help="figures, added to its own")
    args = arguments.parse_args()
    stored = json.loads(args.json.read_text()) if args.json.exists() else []
    measured = {(m.problem, m.setting, m.seed): m for m in (Measured(**one) for one in stored)}
    jobs = [
        Job(name, *split(setting), seed, args.trials)
        for seed, setting, name in itertools.product(
            range(args.seeds), args.settings, args.problems
        )
    ]
    jobs = [job for job in jobs if (job.problem, job.setting, job.seed) not in measured]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        futures = [pool.submit(run_study, job, args.studies) for job in jobs]
        for n, future in enumerate(as_completed(futures), start=1):
            one = future.result()
            measured[one.problem, one.setting, one.seed] = one
            if n % 20 == 0 or n == len(futures):
                rows = [asdict(m) for m in measured.values()]
                args.json.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
                say(f"{n}/{len(futures)}")
    for line in table(list(measured.values())):
        say(line)


def split(setting: str) -> tuple[str, int]:
    sampler, _, n = setting.partition("@")
    return sampler, int(n or 1)


def table(results: Sequence[Measured]) -> list[str]:
    """Return the mean rank of each setting after some numbers of trials, and medians at the end."""
    by = {(m.problem, m.setting, m.seed): m for m in results}
    problems = list(dict.fromkeys(m.problem for m in results))
    settings = list(dict.fromkeys(m.setting for m in results))
    seeds = sorted({m.seed for m in results})
    whole = [(p, s) for p in problems for s in seeds if all((p, one, s) in by for one in settings)]
    titles = ["setting", *(f"rank at {n}" for n in MARKS), *problems, "full from", "s per ask"]
    lines = [row(titles), "|---" * len(titles) + "|"]
    for setting in settings:
        cells = [setting]
        for mark in MARKS:
            ranks = [rank(by, p, s, setting, settings, mark) for p, s in whole]
            cells.append(f"{statistics.fmean(ranks):.2f}" if ranks else "")
        mine = [m for m in results if m.setting == setting]
        for p in problems:
            values = [m.best_after[-1] for m in mine if m.problem == p]
            cells.append(f"{statistics.median(values):.4g}" if values else "")
        cells.append(f"{statistics.median(m.full_from for m in mine):.0f}")
        cells.append(f"{statistics.fmean(m.ask_seconds for m in mine):.3f}")
        lines.append(row(cells))
    return [f"{len(whole)} studies of each setting are ranked.", *lines]


def rank(
    by: Mapping[tuple[str, str, int], Measured],
    problem: str,
    seed: int,
    setting: str,
    settings: Sequence[str],
    mark: int,
) -> float:
    """Return the rank of a setting in one study, 1 for the best; equals share theirs."""
    place = MARKS.index(mark)
    values = [by[problem, one, seed].best_after[place] for one in settings]
    mine = by[problem, setting, seed].best_after[place]
    return sum(v < mine for v in values) + (sum(v == mine for v in values) + 1) / 2


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
