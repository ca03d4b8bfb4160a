"""How long a user waits: for help, for an error, and until the first trial trains.

The first trial is held against what `import torch` and `import mlflow` cost, one after the other in
two fresh processes. Medians over rounds; each round runs all of them once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from whole_process import ProcessFailedError, fresh_folder, ours, parent_folder, run, write

from automl.record.event_log import read_events
from automl.trial import MetricsReported, TrialStarted

_BAD_KEY = "study.n_trialz=3"


def imports(name: str, folder: Path) -> float:
    """Seconds of a process that imports a library and ends."""
    return run((sys.executable, "-c", f"import {name}"), folder).wall_seconds


def refusal(folder: Path) -> float:
    """Seconds until a misspelt key is named."""
    begun = time.perf_counter()
    try:
        run((sys.executable, "-m", "automl", _BAD_KEY), folder)
    except ProcessFailedError as error:
        if "exit 2" in str(error):
            return time.perf_counter() - begun
        raise
    raise AssertionError(f"{_BAD_KEY} was taken")


def first_trial(folder: Path) -> tuple[float, float]:
    """Seconds until the first trial starts, and until its first epoch is trained and reported."""
    timing = run(ours("throughput", "study.name=startup", "study.n_trials=4"), folder)
    events = [event for event, _ in read_events(folder / "studies" / "startup" / "events.log")]
    started, reported = (
        min(event.time for event in events if isinstance(event, kind)) - timing.began_seconds
        for kind in (TrialStarted, MetricsReported)
    )
    return started, reported


def one_round(work: Path | None) -> dict[str, float]:
    """All of it once, each in an empty folder."""
    seconds: dict[str, float] = {}
    with fresh_folder(work) as folder:
        seconds["import torch"] = imports("torch", folder)
        seconds["import mlflow"] = imports("mlflow", folder)
        seconds["--help"] = run((sys.executable, "-m", "automl", "--help"), folder).wall_seconds
        seconds["a bad key"] = refusal(folder)
    with fresh_folder(work) as folder:
        seconds["first trial, new store: started"], seconds["its first epoch"] = first_trial(folder)
        again = folder / "studies" / "startup"
        again.rename(again.with_name("before"))
        key = "first trial, store that is there: started"
        seconds[key], seconds["its first epoch then"] = first_trial(folder)
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw times")
    args = arguments.parse_args()
    rounds = [one_round(args.work) for _ in range(args.rounds)]
    if args.json is not None:
        args.json.write_text(json.dumps(rounds, indent=1) + "\n")
    write("| what | seconds, median | all rounds |\n|---|---|---|")
    for name in rounds[0]:
        found = [seconds[name] for seconds in rounds]
        each = ", ".join(f"{s:.2f}" for s in found)
        write(f"| {name} | {statistics.median(found):.2f} | {each} |")


if __name__ == "__main__":
    main()
