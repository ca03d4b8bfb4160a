"""What `plan` says of a sweep before it runs, against what happens: seconds of a trial by family,
time of all trials, and memory of a trial. See planned.md.

A row per table as it is known; a table that fails gets its error, and the next one follows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

import tables

from automl.record.studies import read_study
from automl.trial import FAMILY_PARAM

TABLES = (
    *("iris", "wine", "breast-cancer", "digits", "diabetes", "few-rows", "wide", "spirals"),
    *("friedman", "linear-amount", "noise-columns", "words", "calendar", "correlated", "xor"),
    *("categories", "counts", "many-levels", "imbalanced", "mixed"),
)
"""Twenty tables, the small ones first; `mixed` has 12,000 rows."""
LIMIT_SECONDS = 120.0
"""Most seconds for a plan, and for the trials of a table."""
CLOSE = 0.3
"""A plan is close where what happened is between 1 / (1 + CLOSE) and 1 + CLOSE times of it."""
HEADS = ("table", "planned, s", "trials, s", "time", "memory", "families", "plan took, s")
AUTOML = (sys.executable, "-m", "automl")


@dataclass(frozen=True)
class Comparison:
    """What happened, divided by what was planned."""

    planned_seconds: float
    seconds: float
    by_family: Mapping[str, float]
    """Ratio of the median time of a family's trials to the time that was planned."""
    memory: float | None
    """Ratio of the largest peak of a trial. None: none was planned."""
    plan_seconds: float

    @property
    def time(self) -> float:
        return self.seconds / self.planned_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), help="names; default: twenty")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--out", type=Path, help="file to which a line per trial is appended")
    parser.add_argument("overrides", nargs="*", help="settings, such as model=boosting")
    asked = parser.parse_intermixed_args()
    say(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    found: list[Comparison] = []
    for name in asked.tables:
        with tempfile.TemporaryDirectory() as folder:
            try:
                one, trials = compared(
                    tables.table(name, asked.data), Path(folder), asked.trials, asked.overrides
                )
            except (KeyError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                say(f"| {name} | failed: {' '.join(str(error).split())[-300:]} |")
                continue
        found.append(one)
        if asked.out is not None:
            with asked.out.open("a") as stream:
                stream.writelines(json.dumps({"table": name, **trial}) + "\n" for trial in trials)
        say(row(name, one))
    if found:
        say(f"\n{summary(found)}")


def compared(
    table: tables.Table, folder: Path, n_trials: int, overrides: Sequence[str]
) -> tuple[Comparison, list[dict[str, Any]]]:
    """Plan a sweep, run it, and compare; a dict for each trial has what was planned of it.

    Raises RuntimeError if either fails.
    """
    table.frame.to_csv(folder / "t.csv", index=False)
    words = ["table=t.csv", f"target={tables.TARGET}", f"data.task={table.task}", *overrides]
    words += [f"n_trials={n_trials}", "tracking.uri=none"]
    begun = time.perf_counter()
    plan = json.loads(run([*AUTOML, "plan", *words, "--json"], folder))
    plan_seconds = time.perf_counter() - begun
    run([*AUTOML, "sweep", *words, "name=s", f"study.timeout_seconds={LIMIT_SECONDS}"], folder)
    trials = [t for t in read_study(folder / "studies" / "s").trials.values() if t.state.is_final]
    if len(trials) < n_trials:
        raise RuntimeError(f"only {len(trials)} trials ended in {LIMIT_SECONDS:g} s")
    families = {one["family"]: one for one in plan["families"]}
    only = next(iter(families))
    each = [
        {
            "planned": families[family],
            "planned_seconds": waited + (families[family]["seconds"] or 0.0),
            "seconds": trial.seconds,
            "n_reports": trial.n_reports,
            "peak_bytes": max(trial.peaks.values(), default=None),
        }
        for trial, waited in zip(trials, waits(plan), strict=False)
        for family in [str(trial.params.get(FAMILY_PARAM, only))]
    ]
    found = Comparison(
        planned_seconds=plan["time"]["seconds"],
        seconds=max(t.started + t.seconds for t in trials) - min(t.started for t in trials),
        by_family=ratios_by_family(each),
        memory=memory_ratio(each),
        plan_seconds=plan_seconds,
    )
    return found, each


def waits(plan: Mapping[str, Any]) -> Iterator[float]:
    """Yield the seconds that each trial waits for its process by the plan: the first ones do."""
    yield from [plan["time"]["start_seconds"]] * plan["time"]["n_at_once"]
    yield from repeat(0.0)


def ratios_by_family(trials: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median time of a family's trials, divided by the time that was planned."""
    ratios = defaultdict[str, list[float]](list)
    for trial in trials:
        if trial["planned"]["seconds"]:
            ratio = trial["seconds"] / trial["planned_seconds"]
            ratios[trial["planned"]["family"]].append(ratio)
    return {family: median(found) for family, found in ratios.items()}


def memory_ratio(trials: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the largest peak of a trial, divided by the largest that was planned."""
    planned = [t["planned"]["peak_bytes"] for t in trials if t["planned"]["peak_bytes"]]
    seen = [trial["peak_bytes"] for trial in trials if trial["peak_bytes"]]
    return max(seen) / max(planned) if planned and seen else None


def run(command: Sequence[str], folder: Path) -> str:
    """Return what a command prints. Raises RuntimeError with its error."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=3 * LIMIT_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def row(name: str, one: Comparison) -> str:
    memory = "" if one.memory is None else f"{one.memory:.2f}"
    families = ", ".join(f"{family} {ratio:.2f}" for family, ratio in one.by_family.items())
    cells = [name, f"{one.planned_seconds:.1f}", f"{one.seconds:.1f}", f"{one.time:.2f}", memory]
    return f"| {' | '.join([*cells, families, f'{one.plan_seconds:.0f}'])} |"


def summary(found: Sequence[Comparison]) -> str:
    """Return the share of close ones and the median, for each quantity."""
    by_family = [ratio for one in found for ratio in one.by_family.values()]
    memory = [one.memory for one in found if one.memory is not None]
    lines = []
    for what, ratios in (
        ("time of all trials", [one.time for one in found]),
        ("time of a trial by family", by_family),
        ("memory of a trial", memory),
    ):
        if ratios:
            close = sum(1 / (1 + CLOSE) <= ratio <= 1 + CLOSE for ratio in ratios)
            lines.append(
                f"{what}: {close} of {len(ratios)} within {CLOSE:.0%}, "
                f"median {median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"
            )
    return "\n".join(lines)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
