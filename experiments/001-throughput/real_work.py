"""Real work: an MLP of 700,000 parameters on Adult; automl against the bare loops, whole processes.

The bare loops run in two warm processes and record nothing, so their time divided by ours says
which share of the machine is left to training. Trials are enough for 200 s of bare loops on two
cores (`--trials` for other machines).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from whole_process import fresh_folder, ours, parent_folder, run, script, write

_N_TRIALS = 56


def one_round(table: Path, n_trials: int, work: Path | None, only: str) -> dict[str, float]:
    """Seconds of the bare loops and of ours, one after the other."""
    seconds: dict[str, float] = {}
    with fresh_folder(work) as folder:
        if only != "ours":
            run(script(sys.executable, "adult.py", table, folder / "adult.npz"), folder)
            options = ("--setting", "real_work", "--table", folder / "adult.npz")
            bare = script(
                sys.executable, "bare.py", *options, "--trials", n_trials, "--processes", 2
            )
            seconds["bare"] = run(bare, folder).wall_seconds
    with fresh_folder(work) as folder:
        if only != "bare":
            command = ours("real_work", f"study.n_trials={n_trials}", f"data.path={table}")
            seconds["ours"] = run(command, folder).wall_seconds
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("table", type=Path, help="the Adult training table, CSV with a header")
    arguments.add_argument("--trials", type=int, default=_N_TRIALS)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", choices=["both", "bare", "ours"], default="both")
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw times")
    args = arguments.parse_args()
    rounds: list[dict[str, float]] = []
    for _ in range(args.rounds):
        rounds.append(one_round(args.table.resolve(), args.trials, args.work, args.only))
        write(json.dumps(rounds[-1]))
        if args.json is not None:
            args.json.write_text(json.dumps(rounds, indent=1) + "\n")
    if args.only == "both":
        bare, our = (statistics.median(r[name] for r in rounds) for name in ("bare", "ours"))
        write(f"bare {bare:.1f} s, ours {our:.1f} s, bare / ours {bare / our:.3f}")


if __name__ == "__main__":
    main()
