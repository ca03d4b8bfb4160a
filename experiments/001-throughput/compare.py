"""256 small trials: automl against Optuna with MLflow and Ray Tune with MLflow, in rounds.

Each contender is a whole process in an empty folder; the peers have an environment of their own
(`make bench-peers`). One after another, round by round, so that a slow spell of the machine hits
all alike. What each recorded is counted afterwards.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import records
from whole_process import PEERS, fresh_folder, ours, parent_folder, run, script, write

_N_EPOCHS = 20
_OPTUNA = ("optuna-1", "optuna-2")
_OURS = ("ours-packs", "ours-alone", "ours-inline")


@dataclass(frozen=True)
class Result:
    """One contender in one round."""

    contender: str
    round: int
    trials: int
    wall_seconds: float
    cpu_seconds: float
    others_cores: float
    n_complete: int | None
    n_checkpoints: int | None


def contenders(n_trials: int) -> dict[str, tuple[str, ...]]:
    """The command of each, by name."""
    total = f"study.n_trials={n_trials}"
    workers = ("throughput", total, "execution=workers")
    peer = ("--trials", n_trials)
    return {
        "bare-1": script(sys.executable, "bare.py", *peer, "--processes", 1),
        "bare-2": script(sys.executable, "bare.py", *peer, "--processes", 2),
        "ours-packs": ours(*workers, "execution.pack=auto"),
        "ours-alone": ours(*workers, "execution.pack=off"),
        "ours-inline": ours("throughput", total, "execution=inline"),
        "optuna-1": script(PEERS, "optuna_mlflow.py", *peer, "--jobs", 1),
        "optuna-2": script(PEERS, "optuna_mlflow.py", *peer, "--jobs", 2),
        "ray": script(PEERS, "ray_mlflow.py", *peer, "--cpus", 2),
    }


def measure(name: str, n_round: int, n_trials: int, work: Path | None) -> Result:
    """Run one contender in an empty folder and count its records (the bare loops leave none)."""
    with fresh_folder(work) as folder:
        timing = run(contenders(n_trials)[name], folder)
        bare = name.startswith("bare")
        found = records.Records(None, None) if bare else records.count(folder, _N_EPOCHS)
    return Result(
        contender=name,
        round=n_round,
        trials=n_trials,
        wall_seconds=timing.wall_seconds,
        cpu_seconds=timing.cpu_seconds,
        others_cores=timing.others_cores,
        n_complete=found.n_complete,
        n_checkpoints=found.n_checkpoints,
    )


def medians(results: list[Result]) -> dict[str, float]:
    """Median seconds by contender."""
    names = dict.fromkeys(result.contender for result in results)
    return {
        name: statistics.median(r.wall_seconds for r in results if r.contender == name)
        for name in names
    }


_COLUMNS = (
    "contender",
    "median s",
    "rounds s",
    "ms per trial",
    "CPU s",
    "others' cores",
    "complete runs",
    "checkpoints",
)


def times_table(results: list[Result]) -> str:
    """Per contender: median, all times, and the least that was found recorded."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for name, median in medians(results).items():
        own = [result for result in results if result.contender == name]
        found = [(r.n_complete, r.n_checkpoints) for r in own if r.n_complete is not None]
        cells = (
            name,
            f"{median:.1f}",
            ", ".join(f"{result.wall_seconds:.1f}" for result in own),
            f"{1000 * median / own[0].trials:.0f}",
            f"{statistics.median(result.cpu_seconds for result in own):.1f}",
            ", ".join(f"{result.others_cores:.2f}" for result in own),
            *map(str, min(found, default=("-", "-"), key=str)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios_table(by_name: dict[str, float]) -> str:
    """How many times faster each of ours is: than the better Optuna, than Ray, than bare loops."""
    optuna = min((by_name[name] for name in _OPTUNA if name in by_name), default=None)
    others = {"optuna (better)": optuna, "ray": by_name.get("ray"), "bare-2": by_name.get("bare-2")}
    lines = ["| | " + " | ".join(f"{other} / it" for other in others) + " |", "|---|---|---|---|"]
    for name in _OURS:
        if name in by_name:
            cells = (f"{s / by_name[name]:.2f}" if s else "-" for s in others.values())
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    names = list(contenders(1))
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--trials", type=int, default=256)
    arguments.add_argument("--only", nargs="+", choices=names, default=names)
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw times")
    args = arguments.parse_args()
    results: list[Result] = []
    for n_round in range(args.rounds):
        for name in args.only:
            results.append(measure(name, n_round, args.trials, args.work))
            write(f"round {n_round}: {name} {results[-1].wall_seconds:.1f} s")
            if args.json is not None:  # after each, so that a long comparison may be cut short
                raw = [dataclasses.asdict(result) for result in results]
                args.json.write_text(json.dumps(raw, indent=1) + "\n")
    write(times_table(results))
    if any(name in _OURS for name in args.only):
        write(ratios_table(medians(results)))


if __name__ == "__main__":
    main()
