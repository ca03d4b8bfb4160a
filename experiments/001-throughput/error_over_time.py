"""Best validation error against wall-clock on Adult: automl, Optuna with MLflow, Ray with MLflow.

Same rows, same space, same sampler family, no pruner, as long as `--seconds` says. The curve of
each is read from its own MLflow store: when a value was recorded, counted from the start of the
process. Medians over rounds, each round with its own seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import records
from whole_process import PEERS, fresh_folder, ours, parent_folder, run, script, write

_MANY = 1_000_000  # the time limit ends the sweep
_TIMES_SECONDS = (10, 20, 30, 60, 90, 120, 180, 240, 300, 420, 600)

Curve = list[tuple[float, float]]


def commands(args: argparse.Namespace, arrays: Path, seed: int) -> dict[str, tuple[str, ...]]:
    """One command per contender."""
    limits = ("--trials", _MANY, "--seconds", args.seconds, "--sampler", args.sampler)
    peer = ("--setting", "error_over_time", "--table", arrays, "--seed", seed, *limits)
    return {
        "ours": ours(
            "error_over_time",
            f"study.n_trials={_MANY}",
            f"study.timeout_seconds={args.seconds}",
            f"study.seed={seed}",
            f"sampler={args.sampler}",
            f"data.path={args.table.resolve()}",
        ),
        "optuna": script(PEERS, "optuna_mlflow.py", *peer, "--jobs", 2),
        "ray": script(PEERS, "ray_mlflow.py", *peer, "--cpus", 2),
    }


def at(curve: Curve, seconds: float) -> float | None:
    """The best value until then; None before the first."""
    values = [value for when, value in curve if when <= seconds]
    return values[-1] if values else None


def table(curves: dict[str, list[Curve]], until_seconds: float) -> str:
    """Rows are times, columns contenders; `-` where a round had no value yet."""
    lines = ["| seconds | " + " | ".join(curves) + " |", "|---" * (len(curves) + 1) + "|"]
    for seconds in [time for time in _TIMES_SECONDS if time <= until_seconds]:
        cells = []
        for rounds in curves.values():
            values = [value for curve in rounds if (value := at(curve, seconds)) is not None]
            complete = len(values) == len(rounds) and rounds
            cells.append(f"{statistics.median(values):.4f}" if complete else "-")
        lines.append(f"| {seconds} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("table", type=Path, help="the Adult training table, CSV with a header")
    arguments.add_argument("--seconds", type=float, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--sampler", choices=["random", "tpe"], default="tpe")
    arguments.add_argument("--only", nargs="+", choices=["ours", "optuna", "ray"])
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw curves")
    args = arguments.parse_args()
    curves: dict[str, list[Curve]] = {name: [] for name in args.only or ("ours", "optuna", "ray")}
    with fresh_folder(args.work) as shared:
        arrays = shared / "adult.npz"
        run(script(sys.executable, "adult.py", args.table.resolve(), arrays), shared)
        for seed in range(args.rounds):
            for name, command in commands(args, arrays, seed).items():
                if name not in curves:
                    continue
                with fresh_folder(args.work) as folder:
                    timing = run(command, folder)
                    curve = records.best_so_far(folder, "val_error", timing.began_seconds)
                curves[name].append(curve)
                write(f"round {seed}: {name} {curve[-1] if curve else 'no value'}")
                if args.json is not None:
                    args.json.write_text(json.dumps(curves, indent=1) + "\n")
    write(table(curves, args.seconds))


if __name__ == "__main__":
    main()
