"""What a report costs that goes through a node's agent, beside one of this machine's workers.

    PYTHONPATH=. python experiments/016-ray/agent_reports.py --rounds 3

Four trials at once, 4 ms between two reports of each: about a thousand a second. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paced import FOLDER

from tests.execution.cluster.clusters import ROOT, ray_cluster

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "001-throughput"))
from whole_process import of_itself  # noqa: E402 - in another experiment's folder

N_AT_ONCE, N_ASKED, N, RARELY = 4, 500, 5500, 100
WAYS = {"workers": ("execution=workers",), "agents": ("execution=ray",)}


def sweep(function: str, kind: str, space: str, words: Sequence[str]) -> tuple[float, float]:
    """Seconds of CPU that the sweep's own process took, and seconds that it was there. What the
    trials keep lies in the folder that the environment names."""
    command = [sys.executable, "-m", "automl", f"objective={kind}", "study.name=paced"]
    command += [f"objective.target=paced:{function}", f"space={space}", "devices.only=cpu"]
    command += [f"study.n_trials={N_AT_ONCE}", "tracking.uri=none", "sampler=random", *words]
    command += [f"admission.max_concurrent_trials={N_AT_ONCE}"]
    with TemporaryDirectory() as folder:
        shutil.copy(HERE / "paced.py", folder)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
        return of_itself(command, Path(folder), environment)


def kept(name: str) -> list[Any]:
    """Of each trial."""
    files = Path(os.environ[FOLDER]).iterdir()
    return [json.loads(file.read_text())[name] for file in files]


def one_round(words: Sequence[str]) -> dict[str, float]:
    """Microseconds and milliseconds, by their column."""
    few, _ = sweep("report", "python", f"{{n: {N}, every: {RARELY}}}", ["pruner=none", *words])
    many, seconds = sweep("report", "python", f"{{n: {N}, every: 1}}", ["pruner=none", *words])
    own = statistics.fmean(kept("cpu_seconds"))
    sweep("ask", "optuna", f"{{n: {N_ASKED}}}", ["pruner=median", *words])
    waited = sorted(1e3 * seconds for each in kept("seconds") for seconds in each)
    n_events = N_AT_ONCE * (N - N // RARELY)
    return {
        "trial, CPU µs a report": 1e6 * own,
        "sweep, CPU µs a report": 1e6 * (many - few) / n_events,
        "reports a second": N_AT_ONCE * N / seconds,
        "verdict, median ms": statistics.median(waited),
        "verdict, 99 % below, ms": waited[len(waited) * 99 // 100],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        for _ in range(asked.rounds):
            for name, words in WAYS.items():
                rounds[name].append(by_way(name, words))
                sys.stderr.write(f"{name}: {rounds[name][-1]}\n")
    columns = [*rounds["workers"][0]]
    sys.stdout.write(f"| | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}\n")
    for name, found in rounds.items():
        middle = [statistics.median(each[column] for each in found) for column in columns]
        sys.stdout.write(f"| {name} | {' | '.join(f'{one:,.1f}' for one in middle)} |\n")


def by_way(name: str, words: Sequence[str]) -> dict[str, float]:
    if name == "workers":
        return one_round(words)
    with ray_cluster(2) as cluster:
        return one_round([*words, f"ray.address={cluster.address}"])


if __name__ == "__main__":
    main()
