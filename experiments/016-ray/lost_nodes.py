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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from automl.record.event_log import read_events
from automl.trial import Event, FinishedOutcome, InterruptedOutcome, MetricsReported, TrialStarted
from tests.execution.cluster.clusters import ROOT, ray_cluster
from tests.processes import is_running

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
    for process in [*raylet_of(node).children(recursive=True), raylet_of(node)]:
        process.kill()


def stopped(node: Any) -> None:
    for process in (raylet_of(node), agent_of(node)):
        process.suspend()


WAYS: Mapping[str, tuple[Callable[[Any], None], float]] = {
    "raylet killed and reaped": (raylet_reaped, 10.0),
    "raylet killed, a zombie": (raylet_zombie, 20.0),
    "agent killed": (agent, 10.0),
    "whole node killed": (whole_node, 20.0),
    "raylet and agent stopped": (stopped, 35.0),
}
"""And within how many seconds its trials are to go on elsewhere."""


def raylet_of(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def agent_of(node: Any) -> psutil.Process:
    """Its process of ours, by the name that Ray gives it."""
    below = raylet_of(node).children(recursive=True)
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
        lost, numbers = lose_one(
            *(cluster, sweep, trained, lose),
            lambda n: n_epochs(log, n),
            lambda numbers, after: last_starts(log, numbers, after),
        )
    return replace(lost, faults=[*faults_of(read(log), {*numbers}), *exit_of(sweep, folder)])


def lose_one(
    cluster: Any,
    process: subprocess.Popen[bytes],
    trained: Path,
    lose: Callable[[Any], None],
    n_reported: Callable[[int], int],
    starts: Callable[[Sequence[int], float], Sequence[float]],
) -> tuple[Lost, Sequence[int]]:
    """What came of the loss of the node with the most trials, and which these are; no faults yet.
    `n_reported` counts a trial's epochs, `starts` tells when each began after a time, once all
    have."""
    try:
        wait_for(lambda: all(n_reported(n) > 2 for n in range(N_TRIALS)), "eight trials")
        node, numbers = most_trials(cluster, trained)
        old = [last_pid(trained, number) for number in numbers]
        lose(node)
        lost_at = time.time()
        went_on = wait_for(lambda: starts(numbers, lost_at), "going on elsewhere")
        time.sleep(max(0.0, lost_at + LEFT_SECONDS - time.time()))
        n_left = sum(map(is_running, old))
        process.wait(LIMIT_SECONDS)
    finally:
        process.kill()
        resume_all(cluster)
    repeated = [len(epochs) - len({*epochs}) for epochs in map(epochs_of(trained), numbers)]
    return Lost(len(numbers), max(went_on) - lost_at, n_left, max(repeated), ()), numbers


def start_sweep(address: str, folder: Path) -> subprocess.Popen[bytes]:
    words = ["study.name=lost", f"study.n_trials={N_TRIALS}", "study.seed=0", "pruner=none"]
    words += ["objective=python", "objective.target=objective:train", "space={x: [0.0, 1.0]}"]
    words += ["execution=ray", f"ray.address={address}", "devices.only=cpu", "tracking.uri=none"]
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
        below = {process.pid for process in raylet_of(node).children(recursive=True)}
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
    return sum(isinstance(e, MetricsReported) and e.trial == number for e in read(log))


def last_starts(log: Path, numbers: Sequence[int], after: float) -> Sequence[float]:
    """When each of them started after the loss; nothing until all have."""
    at = {e.trial: e.time for e in read(log) if isinstance(e, TrialStarted) and e.time > after}
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
        steps = [e.step for e in own if isinstance(e, MetricsReported)]
        if steps != [*range(N_EPOCHS)]:
            found.append(f"trial {number}: {len(steps)} reports of {len({*steps})} epochs")
        if [e.value for e in own if isinstance(e, FinishedOutcome)] != [least(own)]:
            found.append(f"trial {number}: not the value that it has undisturbed")
        interrupted = [e for e in own if isinstance(e, InterruptedOutcome)]
        if any(not e.node_lost for e in interrupted) or bool(interrupted) != (number in lost):
            found.append(f"trial {number}: interrupted otherwise")
    return found


def least(own: Sequence[Event]) -> float:
    """The least of the values that its params lead to, bit by bit."""
    value, values = next(e for e in own if isinstance(e, TrialStarted)).params["x"], []
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


def cells(name: str, n_rounds: int, play: Callable[[Path], Lost]) -> list[str]:
    """Of so many rounds: trials, seconds, epochs repeated, processes left, faults."""
    rounds = []
    for _ in range(n_rounds):
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            rounds.append(play(Path(folder)))
        sys.stderr.write(f"{name}: {rounds[-1]}\n")
    seconds = sorted(each.elsewhere_seconds for each in rounds)
    shown = f"{median(seconds):.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})"
    faults = "; ".join(fault for each in rounds for fault in each.faults) or "none"
    repeated, n_left = max(each.n_repeated for each in rounds), sum(each.n_left for each in rounds)
    return [str(sum(each.n_trials for each in rounds)), shown, str(repeated), str(n_left), faults]


def write_row(row: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(row)} |\n")
    sys.stdout.flush()


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
        n_trials, shown, *rest = cells(name, asked.rounds, partial(play, lose))
        write_row([name, n_trials, shown, f"{most_seconds:g}", *rest])


if __name__ == "__main__":
    main()
