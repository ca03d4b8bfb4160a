"""What does asking ahead cost TPE? See README.md.

Runs whole studies with the project's own `Study`, many at a time in processes of their own, prints
a table of the best values and writes the raw figures as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from objectives import SPACE, Objective, make_objective

from automl.config import (
    StudyConfig,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.study import AskedTrial, Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome, TrialOutcome

RESULTS = Path(__file__).with_name("results.json")
OBJECTIVES = ("disc", "bowl")
MARKS = (64, 128, 256)
"""The best value is recorded after so many trials, and after the last."""

NToAsk: TypeAlias = Callable[[int, int], int]
"""(trials pending, trials ended) → how many to ask for now."""
LEARNER = TPE()


def in_batches(n: int) -> NToAsk:
    """Ask for `n`, and for no more until all of them are told."""
    return lambda n_pending, n_ended: 0 if n_pending else n


def kept(n: int) -> NToAsk:
    """Ask for another whenever one is told, so that `n` pend: what a pack of `n` lanes does."""
    return lambda n_pending, n_ended: n - n_pending


def by_the_rule(n_pending: int, n_ended: int) -> int:
    """Keep as many pending as a sweep does."""
    return LEARNER.n_may_pend(n_ended) - n_pending


BASELINE, ONE_BY_ONE = "random", "tpe-1"
SETTINGS: dict[str, tuple[Sampler, NToAsk]] = {
    BASELINE: (IndependentSampler(), in_batches(64)),
    "tpe-1": (LEARNER, in_batches(1)),
    "tpe-8": (LEARNER, in_batches(8)),
    "tpe-32": (LEARNER, in_batches(32)),
    "tpe-64": (LEARNER, in_batches(64)),
    "tpe-8-kept": (LEARNER, kept(8)),
    "tpe-32-kept": (LEARNER, kept(32)),
    "tpe-64-kept": (LEARNER, kept(64)),
    "tpe-rule": (LEARNER, by_the_rule),
}


@dataclass(frozen=True)
class Job:
    """One study to run."""

    objective: str
    setting: str
    seed: int
    n_trials: int
    n_epochs: int


@dataclass(frozen=True)
class Measured:
    """One study that was run."""

    objective: str
    setting: str
    seed: int
    best_after: dict[str, float]
    """By number of trials."""
    n_failed: int
    seconds: float

    @property
    def best(self) -> float:
        return list(self.best_after.values())[-1]


def run_study(job: Job) -> Measured:
    """Ask, carry out, tell, in the order of the trials' numbers."""
    sampler, n_to_ask = SETTINGS[job.setting]
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="asking-ahead-") as folder:
        study = Study.open(
            StudyConfig(name="asking-ahead", seed=job.seed),
            StudyRules(SPACE, sampler, NoPruner(), StudyIdentity({}, {})),
            Path(folder),
        )
        try:
            ended = drive(study, n_to_ask, opened(job.objective, job.n_epochs), job)
        finally:
            study.close()
    values = [e.value if isinstance(e, FinishedOutcome) else math.inf for e in ended]
    marks = sorted({n for n in MARKS if n < job.n_trials} | {job.n_trials})
    best_after = {str(n): min(values[:n]) for n in marks}
    n_failed = values.count(math.inf)
    seconds = time.perf_counter() - begun
    return Measured(job.objective, job.setting, job.seed, best_after, n_failed, seconds)


def drive(study: Study, n_to_ask: NToAsk, objective: Objective, job: Job) -> list[TrialOutcome]:
    """The outcomes by number. The oldest trial ends first; a trial that was asked for is carried
    out with all that are pending, and told when its turn comes."""
    pending: deque[AskedTrial] = deque()
    known: dict[int, TrialOutcome] = {}
    ended: list[TrialOutcome] = []
    while len(ended) < job.n_trials:
        n_left = job.n_trials - study.n_asked
        for _ in range(min(n_left, n_to_ask(len(pending), len(ended)))):
            asked = study.ask()
            assert asked is not None, "only a grid is ever exhausted"
            pending.append(asked)
        oldest = pending.popleft()
        if oldest.number not in known:
            new = [trial for trial in pending if trial.number not in known]
            known.update(objective(job.seed, [oldest, *new]))
        ended.append(known.pop(oldest.number))
        study.tell(oldest.number, ended[-1])
    return ended


@cache
def opened(name: str, n_epochs: int) -> Objective:
    """Made ready once per process."""
    return make_objective(name, n_epochs)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=10, help="studies of each setting")
    arguments.add_argument("--trials", type=int, default=256, help="of each study")
    arguments.add_argument("--epochs", type=int, default=10, help="of each trial on the disc set")
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--only", nargs="*", choices=OBJECTIVES, default=OBJECTIVES)
    arguments.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    arguments.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    arguments.add_argument("--show", action="store_true", help="only print the file's table")
    args = arguments.parse_args()
    if args.show:
        for line in table([Measured(**one) for one in json.loads(args.json.read_text())]):
            say(line)
        return
    jobs = [
        Job(objective, setting, seed, args.trials, args.epochs)
        for seed, objective, setting in itertools.product(
            range(args.seeds), args.only, args.settings
        )
    ]
    for line in table(run_all(jobs, args.processes, args.json)):
        say(line)


def run_all(jobs: Sequence[Job], n_processes: int, path: Path) -> list[Measured]:
    """In the order of the jobs; what there is so far is always in the file."""
    measured: dict[Job, Measured] = {}
    so_far: list[Measured] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context) as pool:
        futures = {pool.submit(run_study, job): job for job in jobs}
        for future in as_completed(futures):
            job, found = futures[future], future.result()
            measured[job] = found
            say(
                f"{len(measured)}/{len(jobs)} {job.objective}, {job.setting}, seed {job.seed}: "
                f"best {found.best:.5f}, {found.n_failed} failed, {found.seconds:.1f} s"
            )
            so_far = [measured[job] for job in jobs if job in measured]
            path.write_text(json.dumps([asdict(r) for r in so_far], indent=1) + "\n")
    return so_far


def table(results: Sequence[Measured]) -> list[str]:
    """Best values over the seeds, and in how many of them a setting beats the random sampler."""
    found: dict[tuple[str, str], dict[int, Measured]] = {}
    for one in results:
        found.setdefault((one.objective, one.setting), {})[one.seed] = one
    *early, last = results[0].best_after
    titles = ["objective", "setting", *(f"median after {mark}" for mark in early)]
    titles += [f"after {last}", "mean", "range over seeds", "beats random"]
    titles += [f"worse than {ONE_BY_ONE}"]
    lines = [_row(titles), "|---" * len(titles) + "|"]
    for (objective, setting), by_seed in found.items():
        cells = [
            f"{statistics.median(one.best_after[mark] for one in by_seed.values()):.3g}"
            for mark in (*early, last)
        ]
        values = [one.best for one in by_seed.values()]
        random = found.get((objective, BASELINE), {})
        n_better = sum(one.best < random[s].best for s, one in by_seed.items() if s in random)
        cells += [f"{statistics.fmean(values):.3g}", f"{min(values):.3g} to {max(values):.3g}"]
        cells += ["" if setting == BASELINE else f"{n_better} of {len(random)}"]
        cells += [_difference(by_seed, found.get((objective, ONE_BY_ONE), {}))]
        lines.append(_row([objective, setting, *cells]))
    return lines


def _difference(by_seed: Mapping[int, Measured], others: Mapping[int, Measured]) -> str:
    """Mean of the differences by seed, and its standard error; for two seeds or more."""
    differences = [one.best - others[s].best for s, one in by_seed.items() if s in others]
    if len(differences) < 2:
        return ""
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{statistics.fmean(differences):.2g} ± {error:.2g}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
