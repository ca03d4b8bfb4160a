"""What a report costs: the trial that makes it, and the sweep's process that takes it.

Two sweeps of one trial each (`reporting.py`), with few and with many reports: the difference of the
parents' CPU times, their look at the devices and the display included, is that of their reports.
The same where the trial logs by `mlflow.log_metric`: the study's metric, and another.
Then a trial that only reports, 100,000 times: how many a second at its start and at its end, when
the worker waits for the parent to take them. And the reports of an objective written for Optuna,
each followed by `should_prune`, which waits for the verdict at a rung.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from itertools import product
from pathlib import Path

from whole_process import HERE, fresh_folder, of_itself, ours, parent_folder, write

_FEW, _MANY = 500, 5500
_ROWS = (("none", False), ("none", True), ("halving", False), ("median", False))
_MLFLOW_ROWS = (("none", False), ("none", True), ("halving", True), ("median", True))
_WITHOUT_PAUSE = 100_000
_FILE, _CPU_FILE = "report_seconds.json", "report_cpu_seconds.json"


def sweep(
    folder: Path,
    n_reports: int,
    pruner: str,
    *,
    improving: bool,
    function: str = "train",
    kind: str = "python",
) -> tuple[float, list[float]]:
    """CPU seconds of the parent without its children, and what the function kept."""
    space = f"space={{n: {n_reports}, improving: {str(improving).lower()}}}"
    target, pruning = f"objective.target=reporting:{function}", f"pruner={pruner}"
    command = ours(
        "nothing",
        f"objective={kind}",
        target,
        pruning,
        "study.n_trials=1",
        "devices.only=cpu",
        space,
    )
    path = f"{HERE}:{os.environ.get('PYTHONPATH', '')}"
    cpu, _ = of_itself(command, folder, {**os.environ, "PYTHONPATH": path})
    return cpu, json.loads((folder / _FILE).read_text())


def one_round(
    work: Path | None, pruner: str, *, improving: bool, function: str = "train"
) -> tuple[float, float, float]:
    """Seconds: a report's median, what 99 of 100 stay below, and the parent's per report."""
    cpu, seconds = {}, [0.0]
    for n_reports in (_FEW, _MANY):
        with fresh_folder(work) as folder:
            cpu[n_reports], seconds = sweep(
                folder, n_reports, pruner, improving=improving, function=function
            )
    slow = sorted(seconds)[len(seconds) * 99 // 100]
    return statistics.median(seconds), slow, (cpu[_MANY] - cpu[_FEW]) / (_MANY - _FEW)


def start_and_end(work: Path | None, pruner: str) -> tuple[float, float]:
    """Reports a second in the first and the last tenth of very many."""
    with fresh_folder(work) as folder:
        _, at = sweep(
            folder, _WITHOUT_PAUSE, pruner, improving=False, function="train_without_pause"
        )
    tenth = len(at) // 10
    return tenth / at[tenth - 1], tenth / (at[-1] - at[-1 - tenth])


def with_pauses(work: Path | None, n_rounds: int) -> None:
    write(
        "| pruner | reports | trial, median µs | trial, 99 % below, µs | parent, CPU µs |\n"
        "|---|---|---|---|---|"
    )
    for pruner, improving in _ROWS:
        rounds = [one_round(work, pruner, improving=improving) for _ in range(n_rounds)]
        columns = (1e6 * statistics.median(column) for column in zip(*rounds, strict=True))
        name = "each the best so far" if improving else "none better"
        write(f"| {pruner} | {name} | {' | '.join(f'{c:.0f}' for c in columns)} |")


def by_mlflow(work: Path | None, n_rounds: int) -> None:
    write(
        "| pruner | logged | trial, median µs | trial, 99 % below, µs | parent, CPU µs |\n"
        "|---|---|---|---|---|"
    )
    for pruner, judged in _MLFLOW_ROWS:
        rounds = [
            one_round(work, pruner, improving=judged, function="train_by_mlflow")
            for _ in range(n_rounds)
        ]
        columns = (1e6 * statistics.median(column) for column in zip(*rounds, strict=True))
        name = "the study's metric" if judged else "another"
        write(f"| {pruner} | {name} | {' | '.join(f'{c:.0f}' for c in columns)} |")


def without_pauses(work: Path | None, n_rounds: int) -> None:
    write(
        f"| pruner | of {_WITHOUT_PAUSE:,} reports, a second: the first tenth | the last |\n"
        "|---|---|---|"
    )
    for pruner in ("none", "halving", "median"):
        rounds = [start_and_end(work, pruner) for _ in range(n_rounds)]
        columns = (statistics.median(column) for column in zip(*rounds, strict=True))
        write(f"| {pruner} | {' | '.join(f'{c:,.0f}' for c in columns)} |")


def through_optuna(work: Path | None, n_rounds: int) -> None:
    write(
        "| pruner | a report | trial, median µs | trial, 99 % below, µs | of the mean CPU, µs |\n"
        "|---|---|---|---|---|"
    )
    by_report, by_optuna = ("train", "python"), ("train_as_optuna", "optuna")
    for pruner, (function, kind) in product(("halving", "median"), (by_report, by_optuna)):
        rounds = []
        for _ in range(n_rounds):
            with fresh_folder(work) as folder:
                _, seconds = sweep(
                    folder, _FEW, pruner, improving=False, function=function, kind=kind
                )
                cpu = json.loads((folder / _CPU_FILE).read_text())
            slow = sorted(seconds)[len(seconds) * 99 // 100]
            rounds.append((statistics.median(seconds), slow, cpu))
        columns = (1e6 * statistics.median(column) for column in zip(*rounds, strict=True))
        name = "automl's report" if kind == "python" else "Optuna's report and should_prune"
        write(f"| {pruner} | {name} | {' | '.join(f'{c:.0f}' for c in columns)} |")


_TABLES = {
    "pauses": with_pauses,
    "mlflow": by_mlflow,
    "no-pauses": without_pauses,
    "optuna": through_optuna,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", choices=tuple(_TABLES), help="one of the tables")
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    args = arguments.parse_args()
    for name, table in _TABLES.items():
        if args.only in (None, name):
            table(args.work, args.rounds)


if __name__ == "__main__":
    main()
