"""Which family gets the next trial: rules replayed on what `portfolio.py --outputs` recorded.

A study of a table takes the recorded trials of each family in their order (portfolio, then drawn
ones), and a rule says which family is next. After so many trials the ensemble is chosen by the rows
that judge, as a sweep does, and scored on the test rows. What a rule learns, it learns from the
other tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.models import ensemble_selection
from automl.models.ensemble_selection import _greedy, select_ensemble
from automl.models.families.auto.family import DEFAULT
from automl.models.family import load_families
from automl.models.selection_costs import RowCosts, class_costs, value_costs
from automl.search.samplers.family_choice import FamilyHistory, next_family

Floats = npt.NDArray[np.float64]
Trial: TypeAlias = tuple[str, int]
"""A family, and the number of its trial."""
LEAST = 1e-7
"""No probability counts less."""
LARGEST_RATIO = 0.05
"""Of two losses, as a logarithm: one table of few rows may not decide all."""
DEFAULTS = 8
"""Trials that have one point of each family and all default points."""


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """All trials of a table."""

    name: str
    files: Mapping[Trial, Path]
    said: dict[tuple[Trial, str], Floats] = field(default_factory=dict)
    known: dict[tuple[Trial, ...], float] = field(default_factory=dict)

    @cached_property
    def trials(self) -> Mapping[Trial, Mapping[str, Floats]]:
        found = {}
        for trial, path in sorted(self.files.items()):
            with np.load(path) as arrays:
                found[trial] = {name: arrays[name] for name in arrays.files}
        return found

    @property
    def n_of(self) -> dict[str, int]:
        return {name: sum(family == name for family, _ in self.files) for name in DEFAULT}

    @property
    def task(self) -> Task:
        return (
            Task.classification
            if next(iter(self.trials.values()))["judged"].shape[1] > 1
            else Task.regression
        )

    @cached_property
    def values(self) -> dict[Trial, float]:
        return {trial: float(arrays["value"]) for trial, arrays in self.trials.items()}

    def inputs(self, trial: Trial, part: str) -> Floats:
        """Values, or probabilities of the true classes."""
        if (trial, part) not in self.said:
            self.said[trial, part] = self._inputs(trial, part)
        return self.said[trial, part]

    def _inputs(self, trial: Trial, part: str) -> Floats:
        arrays = self.trials[trial]
        outputs, y = arrays[part], arrays[f"{part}_y"]
        if self.task is Task.regression:
            mean, scale = arrays["unit"]
            return np.asarray(outputs[:, 0] * scale + mean)
        logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        return np.asarray(np.exp(logs[np.arange(len(logs)), y]).clip(LEAST))

    def weights(self, trials: Sequence[Trial], *, quick: bool = True) -> Floats:
        """Of the ensemble; `quick`: as of many rows, which takes a fortieth of the time."""
        said = np.stack([self.inputs(trial, "judged") for trial in trials])
        y = next(iter(self.trials.values()))["judged_y"].astype(np.float64)
        if not quick:
            return np.array(select_ensemble(self.costs(said, y)).weights)
        return np.asarray(_greedy(self.costs(said, y), np.arange(said.shape[1])))

    def costs(self, said: Floats, y: Floats) -> RowCosts:
        return value_costs(said, y) if self.task is Task.regression else class_costs(said)

    def judged_loss(self, trials: Sequence[Trial]) -> float:
        """Of the ensemble, on the rows that chose it."""
        said = np.stack([self.inputs(trial, "judged") for trial in trials])
        mean, y = self.weights(trials) @ said, next(iter(self.trials.values()))["judged_y"]
        losses = np.square(mean - y) if self.task is Task.regression else -np.log(mean)
        return float(losses.mean())

    def loss(self, trials: Sequence[Trial]) -> float:
        """Log-loss or RMSE of the trials' ensemble on the test rows."""
        trials = sorted(trials)
        if tuple(trials) not in self.known:
            self.known[tuple(trials)] = self._loss(trials)
        return self.known[tuple(trials)]

    def _loss(self, trials: Sequence[Trial]) -> float:
        return self.scored(trials, self.weights(trials, quick=False))

    def scored(self, trials: Sequence[Trial], weights: Floats) -> float:
        """Log-loss or RMSE on the test rows."""
        said = weights @ np.stack([self.inputs(trial, "test") for trial in trials])
        if self.task is not Task.regression:
            return float(-np.log(said).mean())
        y = next(iter(self.trials.values()))["test_y"]
        return float(np.sqrt(np.square(said - y).mean()))

    def gain(self, family: str) -> float:
        """By how much of the best default the best of all trials of a family is better."""
        n = min(load_families()[family]().n_default_points, self.n_of[family])
        values = [self.values[family, i] for i in range(self.n_of[family])]
        return 1 - min(values) / max(min(values[:n]), 1e-12)


Rule: TypeAlias = Callable[[RecordedTable, list[Trial], Mapping[str, float]], str]
"""Returns the family of the next trial, from the trials so far and what each family may gain."""


def left(table: RecordedTable, done: list[Trial]) -> dict[str, int]:
    """Trials that are done, of the families that have more."""
    n = {name: sum(family == name for family, _ in done) for name in DEFAULT}
    return {name: count for name, count in n.items() if count < table.n_of[name]}


def first_round(done: list[Trial]) -> str | None:
    """One point of each family, and the other default points."""
    order = portfolio_order()[:DEFAULTS]
    return order[len(done)] if len(done) < len(order) else None


def best_of(table: RecordedTable, done: list[Trial]) -> dict[str, float]:
    best: dict[str, float] = {}
    for family, i in done:
        best[family] = min(best.get(family, np.inf), table.values[family, i])
    return best


def today(table: RecordedTable, done: list[Trial], gains: Mapping[str, float]) -> str:
    """The whole portfolio in turns, then rising bandits after three trials each."""
    open_, points = left(table, done), portfolio_order()
    if len(done) < len(points) and points[len(done)] in open_:
        return points[len(done)]
    histories = {f: FamilyHistory([table.values[t] for t in done if t[0] == f]) for f in DEFAULT}
    return next_family([*open_], {f: histories[f] for f in open_})


@lru_cache
def portfolio_order() -> tuple[str, ...]:
    turns = []
    for name in DEFAULT:
        family = load_families()[name]()
        n_points = len(family.portfolio()) + 2 * (name == "trees")
        n_defaults = family.n_default_points
        turns += [(min(i, 1) + max(0, i - n_defaults + 1), name) for i in range(n_points)]
    return tuple(name for _, name in sorted(turns, key=lambda turn: turn[0]))


def shared(best: Mapping[str, float], n: Mapping[str, int], kept: Sequence[str]) -> str:
    """The kept families in shares of 1, 1/2, 1/3 by their best."""
    ranked = sorted(kept, key=lambda name: best[name])
    return min(ranked, key=lambda name: (n[name] + 1) * (1 + ranked.index(name)))


def gated(slack: float, check: int | None, *, shares: bool = True) -> Rule:
    """After the first round a family must be able to reach the leader; `check`: else every so
    many trials."""

    def choose(table: RecordedTable, done: list[Trial], gains: Mapping[str, float]) -> str:
        if (name := first_round(done)) is not None:
            return name
        open_, best = left(table, done), best_of(table, done)
        lead = min(best.values())
        kept = [f for f in open_ if best[f] * (1 - slack * gains[f]) <= lead]
        trailing = [f for f in open_ if f not in kept]
        if not kept or (check and trailing and (len(done) - DEFAULTS) % check == check - 1):
            return min(trailing, key=lambda f: open_[f])
        return shared(best, open_, kept) if shares else min(kept, key=lambda f: open_[f])

    return choose


def by_ensemble(check: int) -> Rule:
    """Families in shares of their weight in the ensemble so far, a check now and then."""

    def choose(table: RecordedTable, done: list[Trial], gains: Mapping[str, float]) -> str:
        if (name := first_round(done)) is not None:
            return name
        open_, weights = left(table, done), table.weights(done)
        of = {f: sum(w for w, t in zip(weights, done, strict=True) if t[0] == f) for f in open_}
        kept = [f for f in open_ if of[f] > 0.02]
        trailing = [f for f in open_ if f not in kept]
        if not kept or (trailing and (len(done) - DEFAULTS) % check == check - 1):
            return min(trailing, key=lambda f: open_[f])
        return min(kept, key=lambda f: (open_[f] + 1) / of[f])

    return choose


def by_gain_of_ensemble(check: int) -> Rule:
    """The family without which the ensemble is worst, by the square root of its trials; a check."""

    def choose(table: RecordedTable, done: list[Trial], gains: Mapping[str, float]) -> str:
        if (name := first_round(done)) is not None:
            return name
        open_, whole = left(table, done), table.judged_loss(done)
        if (len(done) - DEFAULTS) % check == check - 1:
            return min(open_, key=lambda f: open_[f])
        lost = {f: table.judged_loss([t for t in done if t[0] != f]) - whole for f in open_}
        return max(open_, key=lambda f: (lost[f] * gains[f] / (open_[f] + 1), -open_[f]))

    return choose


RULES: Mapping[str, Rule] = {
    "today": today,
    "in turns": gated(np.inf, None, shares=False),
    "shares, none dropped": gated(np.inf, None),
    "gate, no check": gated(1, None),
    "gate, check of 8": gated(1, 8),
    "gate of half the gain, check of 8": gated(0.5, 8),
    "gate of twice the gain, check of 8": gated(2, 8),
    "gate of none of the gain, check of 8": gated(0, 8),
    "gate, check of 8, in turns": gated(1, 8, shares=False),
    "weights in the ensemble, check of 8": by_ensemble(8),
    "loss of the ensemble without it": by_gain_of_ensemble(8),
}


def replay(
    table: RecordedTable, rule: Rule, gains: Mapping[str, float], n_trials: int
) -> list[Trial]:
    done: list[Trial] = []
    while len(done) < n_trials and left(table, done):
        family = rule(table, done, gains)
        open_ = left(table, done)
        if family not in open_:
            family = min(open_, key=lambda name: open_[name])
        done.append((family, open_[family]))
    return done


def gains_without(tables: Sequence[RecordedTable], name: str, quantile: float) -> dict[str, float]:
    others = [table for table in tables if table.name != name]
    return {
        family: float(np.quantile([table.gain(family) for table in others], quantile))
        for family in DEFAULT
    }


def read(folders: Sequence[Path], n_least: int) -> list[RecordedTable]:
    found: dict[str, dict[Trial, Path]] = {}
    for path in sorted(p for folder in folders for p in folder.glob("outputs/*/*.npz")):
        family, number = path.stem.rsplit("-", 1)
        found.setdefault(path.parent.name, {})[family, int(number)] = path
    tables = [RecordedTable(name, files) for name, files in found.items()]
    return [table for table in tables if min(table.n_of.values()) >= n_least]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="what portfolio.py wrote, --out")
    parser.add_argument("--trials", type=int, nargs="+", default=[12, 20])
    parser.add_argument("--quantile", type=float, default=0.9, help="of the tables' gains")
    parser.add_argument("--floors", action="store_true", help="of the ensemble; and the order")
    asked = parser.parse_args()
    tables = read(asked.folders, 4)
    say(f"{len(tables)} tables: {', '.join(table.name for table in tables)}")
    if asked.floors:
        floors(tables)
        orders(tables)
        return
    every = gains_without(tables, "", asked.quantile)
    say("gains: " + ", ".join(f"{name} {gain:.3f}" for name, gain in every.items()))
    losses = np.empty((len(RULES), len(asked.trials), len(tables)))
    seconds = np.empty_like(losses)
    for t, table in enumerate(tables):
        gains = gains_without(tables, table.name, asked.quantile)
        for r, rule in enumerate(RULES.values()):
            done = replay(table, rule, gains, max(asked.trials))
            for n, n_trials in enumerate(asked.trials):
                losses[r, n, t] = table.loss(done[:n_trials])
                seconds[r, n, t] = sum(
                    float(table.trials[x]["cpu_seconds"]) for x in done[:n_trials]
                )
        say(f"{table.name}: " + " ".join(f"{loss:.4g}" for loss in losses[:, -1, t]))
    ratio = 100 * np.log(losses / losses[:1]).clip(-LARGEST_RATIO, LARGEST_RATIO)
    say(
        "| rule | "
        + " | ".join(f"{n} trials, %" for n in asked.trials)
        + " | CPU | better, worse |"
    )
    for r, name in enumerate(RULES):
        cells = []
        for n in range(len(asked.trials)):
            error = ratio[r, n].std(ddof=1) / np.sqrt(len(tables))
            cells.append(f"{ratio[r, n].mean():+.2f} ± {2 * error:.2f}")
        cpu = seconds[r, -1].sum() / seconds[0, -1].sum()
        counts = (ratio[r, -1] < -0.2).sum(), (ratio[r, -1] > 0.2).sum()
        say(f"| {name} | {' | '.join(cells)} | {cpu:.2f} | {counts[0]}, {counts[1]} |")


def floors(tables: Sequence[RecordedTable]) -> None:
    """Say what an ensemble is worth with and without its floor, beside the best model alone."""
    say("| trials | without the floor | best model alone | the floor binds on |")
    for n_trials in (2, 4, 8, 16, 20):
        rows = []
        for table in tables:
            done = replay(table, today, {}, n_trials)
            with_floor = table.weights(done, quick=False)
            with without_floor():
                joined = table.weights(done, quick=False)
            alone = np.zeros(len(done))
            alone[np.argmin([table.values[trial] for trial in done])] = 1
            rows.append([table.scored(done, w) for w in (with_floor, joined, alone)])
        ratio = 100 * np.log(np.array(rows) / np.array(rows)[:, :1]).clip(
            -LARGEST_RATIO, LARGEST_RATIO
        )
        error = 2 * ratio.std(axis=0, ddof=1) / np.sqrt(len(tables))
        binds = [t.name for t, row in zip(tables, rows, strict=True) if row[0] != row[1]]
        cells = [f"{ratio[:, i].mean():+.2f} ± {error[i]:.2f}" for i in (1, 2)]
        say(f"| {n_trials} | {' | '.join(cells)} | {', '.join(binds) or 'none'} |")


def orders(tables: Sequence[RecordedTable]) -> None:
    """Say what other orders of the portfolio are worth beside today's."""
    say("| trials | the defaults first, % | CPU | without the library's forests, % | CPU |")
    for n_trials in (3, 5, 8, 13):
        losses, seconds = np.empty((3, len(tables))), np.zeros(3)
        for t, table in enumerate(tables):
            now = replay(table, today, {}, n_trials)
            early = numbered(defaults_first())[:n_trials]
            each = now, early if n_trials < DEFAULTS else now, before(table)[:n_trials]
            for i, done in enumerate(each):
                losses[i, t] = table.loss(done)
                seconds[i] += sum(float(table.trials[one]["cpu_seconds"]) for one in done)
        ratio = 100 * np.log(losses / losses[0]).clip(-LARGEST_RATIO, LARGEST_RATIO)
        error = 2 * ratio.std(axis=1, ddof=1) / np.sqrt(len(tables))
        means, share = ratio.mean(axis=1), seconds / seconds[0]
        cells = [f"{means[i]:+.2f} ± {error[i]:.2f} | {share[i]:.2f}" for i in (1, 2)]
        say(f"| {n_trials} | {' | '.join(cells)} |")


def numbered(families: Sequence[str]) -> list[Trial]:
    return [(name, families[:i].count(name)) for i, name in enumerate(families)]


def defaults_first() -> list[str]:
    """The default points of a family together."""
    return [f for f in DEFAULT for _ in range(load_families()[f]().n_default_points)]


def before(table: RecordedTable) -> list[Trial]:
    """The portfolio without scikit-learn's forests, in turns."""
    own = 3 if table.task is Task.classification else 2
    points = {name: [0, 1, 2] for name in ("boosting", "mlp", "kernel")}
    points |= {"linear": [0], "trees": [0, own, own + 1]}
    return [(f, points[f][i]) for i in range(3) for f in DEFAULT if i < len(points[f])]


@contextmanager
def without_floor() -> Iterator[None]:
    before = ensemble_selection._is_better
    ensemble_selection._is_better = lambda *_: False
    try:
        yield
    finally:
        ensemble_selection._is_better = before


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
