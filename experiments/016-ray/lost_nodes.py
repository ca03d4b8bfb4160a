"""A node is lost in five ways while trials run: where do they go on, when, and what is lost?

    PYTHONPATH=. python experiments/016-ray/lost_nodes.py --rounds 3

A cluster of three nodes and a sweep for each round; the node with the most trials is lost. What is
counted stands in README.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from automl.record.events import read_events
from automl.trial import Event, Finished, Interrupted, Reported, Started
from tests.execution.cluster.clusters import ROOT, ray_cluster, runs

N_TRIALS, N_EPOCHS, EPOCH_SECONDS = 8, 60, 0.5
LIMIT_SECONDS = 240.0
LEFT_SECONDS = 20.0
"""After a loss no process of its trials' old attempts is there."""
OBJECTIVE = f"""
import os, time
from functools import partial

def train(trial):
    state = trial.restore() or {{"epoch": -1, "value": trial.params["x"]}}
    for epoch in range(state["epoch"] + 1, {N_EPOCHS}):
        time.sleep({EPOCH_SECONDS})
        with open(os.path.join(os.environ["TRAINED"], str(trial.number)), "a") as trained:
            trained.write(f"{{epoch}} {{os.getpid()}}\\n")
        state = {{"epoch": epoch, "value": state["value"] / 3 + epoch}}
        trial.report(epoch, {{"val_loss": state["value"]}}, checkpoint=partial(dict, **state))
"""


@dataclass(frozen=True)
class Lost:
    """What came of a round."""

    n_trials: int
    """That ran there."""
    elsewhere_seconds: float
    """Until the last of them went on."""
    n_left: int
    """Processes of their old attempts after `LEFT_SECONDS`."""
    n_repeated: int
    """Epochs that the trial which lost most trained twice."""
    faults: Sequence[str]
    """What is not as it is without a loss."""


# --- ways of losing a node ------------------------------------------------------------------------


def raylet_reaped(node: Any) -> None:
    raylet = node.all_processes["raylet"][0].process
    raylet.kill()
    raylet.wait()


def raylet_zombie(node: Any) -> None:
    node.all_processes["raylet"][0].process.kill()


def agent(node: Any) -> None:
    agent_of(node).kill()


def whole_node(node: Any) -> None:
    for process in [*_raylet(node).children(recursive=True), _raylet(node)]:
        process.kill()


def stopped(node: Any) -> None:
    for process in (_raylet(node), agent_of(node)):
        process.suspend()


WAYS: Mapping[str, tuple[Callable[[Any], None], float]] = {
    "raylet killed and reaped": (raylet_reaped, 10.0),
    "raylet killed, a zombie": (raylet_zombie, 20.0),
    "agent killed": (agent, 10.0),
    "whole node killed": (whole_node, 20.0),
    "raylet and agent stopped": (stopped, 35.0),
}
"""And within how many seconds its trials are to go on elsewhere."""


def _raylet(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def agent_of(node: Any) -> psutil.Process:
    """Its process of ours, by the name that Ray gives it."""
    below = _raylet(node).children(recursive=True)
    return next(process for process in below if "AgentActor" in "".join(process.cmdline()))


# --- a round --------------------------------------------------------------------------------------


def play(lose: Callable[[Any], None], folder: Path) -> Lost:
    """One cluster, one sweep, one loss."""
    trained = folder / "trained"
    trained.mkdir()
    (folder / "objective.py").write_text(OBJECTIVE)
    os.environ["TRAINED"] = str(trained)  # to the cluster's workers, too
    log = folder / "studies" / "lost" / "events.log"
    with ray_cluster(3) as cluster:
        sweep = start_sweep(cluster.address, folder)
        try:
            wait_for(lambda: all(n_epochs(log, n) > 2 for n in range(N_TRIALS)), "eight trials")
            node, numbers = most_trials(cluster, trained)
            old = [last_pid(trained, number) for number in numbers]
            lose(node)
            lost_at = time.time()
            went_on = wait_for(lambda: last_starts(log, numbers, lost_at), "going on elsewhere")
            time.sleep(max(0.0, lost_at + LEFT_SECONDS - time.time()))
            n_left = sum(map(runs, old))
            sweep.wait(LIMIT_SECONDS)
        finally:
            sweep.kill()
            resume_all(cluster)
    events = read(log)
    repeated = [len(epochs) - len({*epochs}) for epochs in map(epochs_of(trained), numbers)]
    return Lost(
        n_trials=len(numbers),
        elsewhere_seconds=max(went_on) - lost_at,
        n_left=n_left,
        n_repeated=max(repeated),
        faults=[*faults_of(events, {*numbers}), *exit_of(sweep, folder)],
    )


def start_sweep(address: str, folder: Path) -> subprocess.Popen[bytes]:
    words = ["study.name=lost", f"study.n_trials={N_TRIALS}", "study.seed=0", "pruner=none"]
    words += ["objective=python", "objective.target=objective:train", "space={x: [0.0, 1.0]}"]
    words += ["execution=ray", f"ray.address={address}", "devices=host", "tracking.store=none"]
    words += ["training.checkpoint_every_seconds=0"]
    words += [f"admission.max_concurrent_trials={N_TRIALS}"]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "automl", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def exit_of(sweep: subprocess.Popen[bytes], folder: Path) -> list[str]:
    """What it said last, where it did not end well."""
    if sweep.returncode == 0:
        return []
    return [f"exit {sweep.returncode}: {(folder / 'said').read_text()[-1000:]!r}"]


def most_trials(cluster: Any, trained: Path) -> tuple[Any, Sequence[int]]:
    """The node that most run on, but not the head, and which."""
    found = []
    for node in cluster.worker_nodes:
        below = {process.pid for process in _raylet(node).children(recursive=True)}
        there = [n for n in range(N_TRIALS) if last_pid(trained, n) in below]
        found.append((len(there), id(node), node, there))
    n, _, node, there = max(found)
    assert n, "trials run on nodes beside the head"
    return node, there


def resume_all(cluster: Any) -> None:
    """What was stopped could not be ended."""
    for node in cluster.worker_nodes:
        for infos in node.all_processes.values():
            for info in infos:
                if info.process.poll() is None:
                    info.process.send_signal(signal.SIGCONT)


# --- what is there --------------------------------------------------------------------------------


def read(log: Path) -> list[Event]:
    return [event for event, _ in read_events(log)] if log.exists() else []


def n_epochs(log: Path, number: int) -> int:
    return sum(isinstance(e, Reported) and e.trial == number for e in read(log))


def last_starts(log: Path, numbers: Sequence[int], after: float) -> Sequence[float]:
    """When each of them started after the loss; nothing until all have."""
    at = {e.trial: e.time for e in read(log) if isinstance(e, Started) and e.time > after}
    return [at[number] for number in numbers] if at.keys() >= {*numbers} else ()


def epochs_of(trained: Path) -> Callable[[int], list[int]]:
    return lambda n: [int(line.split()[0]) for line in (trained / str(n)).read_text().splitlines()]


def last_pid(trained: Path, number: int) -> int:
    return int((trained / str(number)).read_text().split()[-1])


def faults_of(events: Sequence[Event], lost: set[int]) -> list[str]:
    """What a user would miss, or see twice."""
    found = []
    for number in range(N_TRIALS):
        own = [e for e in events if getattr(e, "trial", None) == number]
        steps = [e.step for e in own if isinstance(e, Reported)]
        if steps != [*range(N_EPOCHS)]:
            found.append(f"trial {number}: {len(steps)} reports of {len({*steps})} epochs")
        if [e.value for e in own if isinstance(e, Finished)] != [least(own)]:
            found.append(f"trial {number}: not the value that it has undisturbed")
        interrupted = [e for e in own if isinstance(e, Interrupted)]
        if any(not e.node_lost for e in interrupted) or bool(interrupted) != (number in lost):
            found.append(f"trial {number}: interrupted otherwise")
    return found


def least(own: Sequence[Event]) -> float:
    """The least of the values that its params lead to, bit by bit."""
    value, values = next(e for e in own if isinstance(e, Started)).params["x"], []
    assert isinstance(value, float), "the space says so"
    for epoch in range(N_EPOCHS):
        value = value / 3 + epoch
        values.append(value)
    return min(values)


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    """What it gives."""
    ends = time.monotonic() + LIMIT_SECONDS
    while not (found := holds()):
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {LIMIT_SECONDS:g} s: {what}")
        time.sleep(0.1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    asked = parser.parse_args()
    head = (
        "| what | trials there | elsewhere after, s | at most | epochs repeated | left | faults |"
    )
    sys.stdout.write(f"{head}\n|{'---|' * 7}\n")
    for name in asked.only:
        lose, most_seconds = WAYS[name]
        rounds = []
        for _ in range(asked.rounds):
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                rounds.append(play(lose, Path(folder)))
            sys.stderr.write(f"{name}: {rounds[-1]}\n")
        seconds = sorted(each.elsewhere_seconds for each in rounds)
        shown = f"{median(seconds):.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})"
        faults = [fault for each in rounds for fault in each.faults]
        counts = [sum(each.n_trials for each in rounds), shown, f"{most_seconds:g}"]
        counts += [max(each.n_repeated for each in rounds), sum(each.n_left for each in rounds)]
        cells = [name, *counts, "; ".join(faults) or "none"]
        sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
