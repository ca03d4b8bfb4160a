"""The same as `lost_nodes.py` for Ray Tune: trials with a checkpoint at each epoch, which start
again where that is (`FailureConfig(max_failures=-1)`), results in a folder that all nodes see.

    PYTHONPATH=. python experiments/016-ray/lost_nodes_tune.py --rounds 1

What is counted stands in README.md; Ray Tune's record is the `result.json` of each trial.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from lost_nodes import (
    EPOCH_SECONDS,
    LEFT_SECONDS,
    LIMIT_SECONDS,
    N_EPOCHS,
    N_TRIALS,
    Lost,
    epochs_of,
    last_pid,
    most_trials,
    resume_all,
    wait_for,
)
from lost_nodes import WAYS as ALL_WAYS

from tests.execution.cluster.clusters import ray_cluster, runs

WAYS = {name: way for name, way in ALL_WAYS.items() if "agent" not in name}
"""It has no agents: a node is killed or loses its raylet."""
PEER = f"""
import json, os, sys, tempfile, time
from pathlib import Path
import ray
from ray import tune

def train(config):
    number, at = str(config["number"]), Path(os.environ["TRAINED"])
    with open(at / f"{{number}}.starts", "a") as starts:
        starts.write(f"{{time.time()}}\\n")
    state, kept = {{"epoch": -1, "value": config["number"] / 8}}, tune.get_checkpoint()
    if kept is not None:
        with kept.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
    for epoch in range(state["epoch"] + 1, {N_EPOCHS}):
        time.sleep({EPOCH_SECONDS})
        with open(at / number, "a") as trained:
            trained.write(f"{{epoch}} {{os.getpid()}}\\n")
        state = {{"epoch": epoch, "value": state["value"] / 3 + epoch}}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            tune.report(dict(state), checkpoint=tune.Checkpoint.from_directory(folder))

ray.init(address=sys.argv[1], log_to_driver=False)
tune.Tuner(
    tune.with_resources(train, {{"cpu": 1 / 3}}),
    param_space={{"number": tune.grid_search(list(range({N_TRIALS})))}},
    run_config=tune.RunConfig(
        name="lost",
        storage_path=str(Path.cwd() / "ray_results"),
        failure_config=tune.FailureConfig(max_failures=-1),
        verbose=0,
    ),
).fit()
"""


def play(lose: Callable[[Any], None], folder: Path) -> Lost:
    """One cluster, one run, one loss."""
    trained = folder / "trained"
    trained.mkdir()
    (folder / "peer.py").write_text(PEER)
    os.environ["TRAINED"] = str(trained)
    with ray_cluster(3) as cluster:
        peer = start(cluster.address, folder)
        try:
            wait_for(lambda: all(n_trained(trained, n) > 2 for n in range(N_TRIALS)), "trials")
            node, numbers = most_trials(cluster, trained)
            old = [last_pid(trained, number) for number in numbers]
            lose(node)
            lost_at = time.time()
            went_on = wait_for(lambda: last_starts(trained, numbers, lost_at), "going on elsewhere")
            time.sleep(max(0.0, lost_at + LEFT_SECONDS - time.time()))
            n_left = sum(map(runs, old))
            peer.wait(LIMIT_SECONDS)
        finally:
            peer.kill()
            resume_all(cluster)
    repeated = [len(epochs) - len({*epochs}) for epochs in map(epochs_of(trained), numbers)]
    faults = faults_of(folder / "ray_results")
    if peer.returncode:
        faults.append(f"exit {peer.returncode}")
    return Lost(len(numbers), max(went_on) - lost_at, n_left, max(repeated), faults)


def start(address: str, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "peer.py", address],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def n_trained(trained: Path, number: int) -> int:
    there = trained / str(number)
    return len(epochs_of(trained)(number)) if there.exists() else 0


def last_starts(trained: Path, numbers: Sequence[int], after: float) -> Sequence[float]:
    """When each of them started after the loss; nothing until all have."""
    starts = [float((trained / f"{n}.starts").read_text().split()[-1]) for n in numbers]
    return starts if min(starts) > after else ()


def faults_of(results: Path) -> list[str]:
    """Epochs that its record has twice or not at all."""
    found, records = [], [*results.rglob("result.json")]
    for record in records:
        epochs = [json.loads(line)["epoch"] for line in record.read_text().splitlines()]
        if epochs != [*range(N_EPOCHS)]:
            found.append(f"{len(epochs)} reports, {len({*epochs})} of {N_EPOCHS} epochs")
    return found + [f"{N_TRIALS - len(records)} trials without a record"] * (
        len(records) != N_TRIALS
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    sys.stdout.write(
        "| what | trials there | elsewhere after, s | epochs repeated | left | faults |"
    )
    sys.stdout.write(f"\n|{'---|' * 6}\n")
    for name, (lose, _) in WAYS.items():
        rounds = []
        for _ in range(asked.rounds):
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                rounds.append(play(lose, Path(folder)))
            sys.stderr.write(f"{name}: {rounds[-1]}\n")
        seconds = sorted(each.elsewhere_seconds for each in rounds)
        faults = [fault for each in rounds for fault in each.faults]
        cells = [name, sum(each.n_trials for each in rounds)]
        cells += [f"{median(seconds):.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})"]
        cells += [max(each.n_repeated for each in rounds), sum(each.n_left for each in rounds)]
        sys.stdout.write(f"| {' | '.join(map(str, cells))} | {'; '.join(faults) or 'none'} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
