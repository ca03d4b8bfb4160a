"""What a trial that does nothing costs: 1,000 of them, 10,000 of them, and to go on after 10,000.

Three whole processes: a study of 1,000 trials at most 8 at once; a study of 10,000; and one more
trial for that one. The cost around a number of trials is read from the times at which trials
started, over the 400 trials before it. MLflow is written beside the trials, by another process:
what that costs, and whether it grows, is in the whole-process figures of the two studies.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import records
from whole_process import fresh_folder, ours, parent_folder, run, write

_WINDOW = 400
_EIGHT_AT_ONCE = "admission.max_concurrent_trials=8"


def cost_around(starts: list[float], n_trials: int) -> float:
    """Milliseconds per trial over the trials before the one of this number."""
    first, last = starts[n_trials - _WINDOW], starts[n_trials - 1]
    return 1000 * (last - first) / (_WINDOW - 1)


def small_study(folder: Path, n_trials: int) -> dict[str, float]:
    """A study of trials that do nothing, as a whole process, all of it in MLflow."""
    timing = run(ours("nothing", f"study.n_trials={n_trials}", _EIGHT_AT_ONCE), folder)
    return {
        "trials": n_trials,
        "wall_seconds": timing.wall_seconds,
        "whole_process_ms_per_trial": 1000 * timing.wall_seconds / n_trials,
        "finished_in_mlflow": records.n_finished(folder),
        "others_cores": timing.others_cores,
    }


def large_study(folder: Path, n_trials: int) -> dict[str, float]:
    """A study of many trials, then one more in a second process."""
    options = ("study.name=growth", _EIGHT_AT_ONCE)
    timing = run(ours("nothing", f"study.n_trials={n_trials}", *options), folder)
    starts = records.trial_starts(folder)
    again = run(ours("nothing", f"study.n_trials={n_trials + 1}", *options), folder)
    started = records.trial_starts(folder)[-1]
    early, late = cost_around(starts, n_trials // 10), cost_around(starts, n_trials)
    return {
        "trials": n_trials,
        "wall_seconds": timing.wall_seconds,
        "whole_process_ms_per_trial": 1000 * timing.wall_seconds / n_trials,
        f"ms_per_trial_at_{n_trials // 10}": early,
        f"ms_per_trial_at_{n_trials}": late,
        "ratio": late / early,
        "resume_to_next_trial_seconds": started - again.began_seconds,
        "resume_whole_process_seconds": again.wall_seconds,
        "finished_in_mlflow": records.n_finished(folder),
        "others_cores": timing.others_cores,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3, help="of the study of 1,000 trials")
    arguments.add_argument("--large-rounds", type=int, default=1, help="of the large study")
    arguments.add_argument("--trials", type=int, default=10_000, help="of the large study")
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw figures")
    args = arguments.parse_args()
    if args.trials < 10 * _WINDOW:
        arguments.error(f"--trials {args.trials}: at least {10 * _WINDOW}, or no window fits.")
    results: list[dict[str, float]] = []
    for _ in range(args.rounds):
        with fresh_folder(args.work) as folder:
            results.append(small_study(folder, 1000))
        write(json.dumps(results[-1]))
    for _ in range(args.large_rounds):
        with fresh_folder(args.work) as folder:
            results.append(large_study(folder, args.trials))
        write(json.dumps(results[-1], indent=1))
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
