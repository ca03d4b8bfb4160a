"""How many epochs does each rule take to the same winner? See README.md, Pruning.

The curves are recorded or closed-form, and known before: a trial trains by reading its curve. The
package's own standings and pruners judge the reports, pause trials and promote them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from automl.record.studies import read_study
from automl.search.pruners.asha import PromotingHalving
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.none import NoPruner
from automl.search.pruners.pruner import Pruner
from automl.search.trial_standings import StudyStandings
from automl.trial import StudyMetrics, TrialState, Verdict

RESULTS = Path(__file__).with_name("pruning.json")
N_EPOCHS, N_TRIALS, N_STUDIES, N_PLACES = 20, 20, 10, 2
Curve: TypeAlias = Sequence[float]


def power_laws(chance: random.Random) -> list[float]:
    """Losses that fall to a floor, each with 2 % noise; who is ahead early is mostly ahead late."""
    floor, rise, rate = chance.random(), 2 * chance.random(), chance.uniform(0.5, 1.5)
    return [
        (floor + rise * (epoch + 1) ** -rate) * chance.gauss(1, 0.02) for epoch in range(N_EPOCHS)
    ]


def crossing(chance: random.Random) -> list[float]:
    """Losses of which the slow ones end lower, as with small learning rates."""
    rate = chance.uniform(0.2, 1.0)
    floor = 0.4 * rate * chance.random()
    return [
        (floor + math.exp(-rate * (epoch + 1) / 2)) * chance.gauss(1, 0.02)
        for epoch in range(N_EPOCHS)
    ]


CLOSED: Mapping[str, Callable[[random.Random], list[float]]] = {
    "power": power_laws,
    "crossing": crossing,
}


def curves_of(name: str, studies: Path, seed: int, n_trials: int) -> list[Curve]:
    """Return the curves of one study; those of recorded ones are drawn without repetition."""
    chance = random.Random(seed)
    if name in CLOSED:
        return [CLOSED[name](chance) for _ in range(n_trials)]
    record = read_study(studies / name, keep_reports=True)
    curves = []
    for trial in record.trials.values():
        steps = sorted((trial.reports or {}).items())
        curve = [float(metrics[record.metric.name]) for _, metrics in steps]
        if len(curve) == N_EPOCHS:
            curves.append(curve)
    return chance.sample(curves, n_trials)


@dataclass(frozen=True)
class Outcome:
    """What one study cost and found."""

    share: float
    """Its epochs, as a share of all trials' epochs."""
    winner: int
    value: float


class SimulatedStudy:
    """A study whose trials read their curves, some at a time, an epoch in the same time each."""

    def __init__(self, curves: Sequence[Curve], pruner: Pruner) -> None:
        self.curves = curves
        self.standings = StudyStandings(StudyMetrics(), pruner.for_length(N_EPOCHS))
        self.n_epochs = 0
        self._at: dict[int, int] = {}
        """The epochs that each trial has trained."""

    def run(self, n_places: int) -> Outcome:
        running: list[tuple[int, int]] = []  # (time of the next report, trial)
        now = 0
        while True:
            while len(running) < n_places and (number := self._next()) is not None:
                heapq.heappush(running, (now + 1, number))
            if not running:
                break
            now, number = heapq.heappop(running)
            if self._train(number):
                heapq.heappush(running, (now + 1, number))
        for number, (_, value) in self.standings.paused().items():
            self.standings.end(number, TrialState.PRUNED, value)
        best = self.standings.best()
        assert best is not None
        return Outcome(self.n_epochs / (len(self.curves) * N_EPOCHS), best.number, best.value)

    def _next(self) -> int | None:
        grows = self.standings.n_trials < len(self.curves)
        promoted = self.standings.promotable(grows=grows)
        if promoted is not None:
            self.standings.promote(promoted)
            return promoted
        if not grows:
            return None
        number = self.standings.start({})
        self._at[number] = 0
        return number

    def _train(self, number: int) -> bool:
        """Train an epoch, and return whether the trial goes on."""
        step = self._at[number]
        self.standings.record(number, step, self.curves[number][step])
        self.n_epochs, self._at[number] = self.n_epochs + 1, step + 1
        verdict = self.standings.verdict(number)
        best = min(self.curves[number][: step + 1])
        if step + 1 == N_EPOCHS:
            self.standings.end(number, TrialState.FINISHED, best)
        elif verdict is Verdict.PRUNE:
            self.standings.end(number, TrialState.PRUNED, best)
        elif verdict is Verdict.PAUSE:
            self.standings.pause(number)
        else:
            return True
        return False


def after_one_epoch(curves: Sequence[Curve], n_kept: int) -> Outcome:
    """Train all trials for one epoch, then the best ones to their end (Egele et al., 2023)."""
    kept = sorted(range(len(curves)), key=lambda number: curves[number][0])[:n_kept]
    n_epochs = len(curves) + n_kept * (N_EPOCHS - 1)
    values = {number: min(curves[number]) for number in kept}
    values |= {n: curve[0] for n, curve in enumerate(curves) if n not in values}
    winner = min(values, key=lambda number: values[number])
    return Outcome(n_epochs / (len(curves) * N_EPOCHS), winner, values[winner])


RULES: Mapping[str, Callable[[Sequence[Curve]], Outcome]] = {
    "none": lambda curves: SimulatedStudy(curves, NoPruner()).run(N_PLACES),
    "halving": lambda curves: SimulatedStudy(curves, SuccessiveHalving()).run(N_PLACES),
    "one epoch, best 1": lambda curves: after_one_epoch(curves, 1),
    "one epoch, best 3": lambda curves: after_one_epoch(curves, 3),
    "asha": lambda curves: SimulatedStudy(curves, PromotingHalving()).run(N_PLACES),
    "asha factor=3": lambda curves: SimulatedStudy(curves, PromotingHalving(factor=3)).run(
        N_PLACES
    ),
    "asha min_steps=1": lambda curves: SimulatedStudy(curves, PromotingHalving(min_steps=1)).run(
        N_PLACES
    ),
}


def measure(names: Sequence[str], studies: Path, n_trials: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in names:
        sets = [curves_of(name, studies, seed, n_trials) for seed in range(N_STUDIES)]
        best = [RULES["none"](curves) for curves in sets]
        for rule, run in RULES.items():
            found = [run(curves) for curves in sets]
            same = sum(f.winner == b.winner for f, b in zip(found, best, strict=True))
            behind = [f.value / b.value - 1 for f, b in zip(found, best, strict=True)]
            rows.append(
                {
                    "curves": name,
                    "n_trials": n_trials,
                    "rule": rule,
                    "epochs": round(statistics.fmean(f.share for f in found), 3),
                    "same_winner": same,
                    "behind_mean": round(statistics.fmean(behind), 4),
                    "behind_most": round(max(behind), 4),
                }
            )
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("curves", nargs="*", default=[*CLOSED, "digits20", "adult20"])
    arguments.add_argument("--studies", type=Path, default=Path("studies"))
    arguments.add_argument("--trials", type=int, nargs="*", default=[20, 100])
    args = arguments.parse_args()
    rows = [row for n in args.trials for row in measure(args.curves, args.studies, n)]
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    titles = ["trials", "rule", *(f"{name}: epochs, same" for name in args.curves)]
    say(titles)
    say(["---"] * len(titles))
    for n in args.trials:
        for rule in RULES:
            mine = [row for row in rows if row["n_trials"] == n and row["rule"] == rule]
            cells = [
                f"{row['epochs']}, {row['same_winner']} of {N_STUDIES} ({row['behind_mean']:+.1%})"
                for row in mine
            ]
            say([str(n), rule, *cells])


def say(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
