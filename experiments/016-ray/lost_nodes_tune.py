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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from lost_nodes import (
    EPOCH_SECONDS,
    N_EPOCHS,
    N_TRIALS,
    Lost,
    cells,
    epochs_of,
    exit_of,
    lose_one,
    raylet_of,
    write_row,
)
from lost_nodes import WAYS as ALL_WAYS

from tests.execution.cluster.clusters import ray_cluster

WAYS = {
    **{name: lose for name, (lose, _) in ALL_WAYS.items() if "agent" not in name},
    "its trials' processes killed": lambda node: kill_trials(node),
    "raylet and its trials stopped": lambda node: stop(node),
}
"""It has no agents: each trial is an actor, a process of its own."""
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


def trials_of(node: Any) -> list[psutil.Process]:
    """By the name that Ray gives a process which has an actor."""
    below = raylet_of(node).children(recursive=True)
    return [process for process in below if "ImplicitFunc" in "".join(process.cmdline())]


def kill_trials(node: Any) -> None:
    for trial in trials_of(node):
        trial.kill()


def stop(node: Any) -> None:
    for process in (raylet_of(node), *trials_of(node)):
        process.suspend()


def play(lose: Callable[[Any], None], folder: Path) -> Lost:
    """One cluster, one run, one loss."""
    trained = folder / "trained"
    trained.mkdir()
    (folder / "peer.py").write_text(PEER)
    os.environ["TRAINED"] = str(trained)
    with ray_cluster(3) as cluster:
        peer = start(cluster.address, folder)
        lost, _ = lose_one(
            *(cluster, peer, trained, lose),
            lambda n: n_trained(trained, n),
            lambda numbers, after: last_starts(trained, numbers, after),
        )
    return replace(lost, faults=[*faults_of(folder / "ray_results"), *exit_of(peer, folder)])


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
    parser.add_argument("--only", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    asked = parser.parse_args()
    sys.stdout.write(
        "| what | trials there | elsewhere after, s | epochs repeated | left | faults |"
    )
    sys.stdout.write(f"\n|{'---|' * 6}\n")
    for name in asked.only:
        lose = WAYS[name]
        write_row([name, *cells(name, asked.rounds, partial(play, lose))])


if __name__ == "__main__":
    main()
