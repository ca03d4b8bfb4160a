"""What a process per trial costs, forked from one that has the user's module: see README.md."""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import select
import signal
import statistics
import sys
from collections.abc import Callable

import torch

LIBRARIES = ("matplotlib.pyplot", "pandas", "sklearn.ensemble")
HANG_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    n_trials = parser.parse_args().trials
    torch.set_num_threads(1)
    measure("torch alone, a trial that does nothing", n_trials, lambda: None)
    measure("torch alone, a trial of five steps", n_trials, train)
    train()
    measure("the same, when the module has made an optimizer", n_trials, train)
    in_one_process(n_trials)
    for library in LIBRARIES:
        importlib.import_module(library)
    measure(f"with {', '.join(LIBRARIES)}", n_trials, lambda: None)
    data = torch.ones(256, 1024, 1024)
    measure("with a module that holds 1 GiB of data", n_trials, lambda: None)
    del data
    torch.set_num_threads(2)
    multiply()
    measure("when the module has used two threads of torch", n_trials, multiply)


def train() -> None:
    """Train a small network for five steps."""
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(network.parameters())
    x = torch.randn(256, 64)
    for _ in range(5):
        optimizer.zero_grad()
        network(x).sum().backward()
        optimizer.step()


def multiply() -> None:
    """Compute something that torch divides among its threads."""
    torch.relu(torch.randn(4_000_000)).sum()


def in_one_process(n_trials: int) -> None:
    took = []
    for _ in range(n_trials):
        began = cpu_seconds()
        train()
        took.append(cpu_seconds() - began)
    say("such a trial in a warm process", took)


def measure(what: str, n_trials: int, run: Callable[[], None]) -> None:
    """Fork a process for each trial, and measure the time of both until it was reaped."""
    took = []
    for _ in range(n_trials):
        began = cpu_seconds()
        if not fork_trial(run):
            sys.stdout.write(f"{what}: hangs\n")
            return
        took.append(cpu_seconds() - began)
    say(what, took)


def fork_trial(run: Callable[[], None]) -> bool:
    """Return whether the forked process has come to its end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        run()
        os.write(write, b"!")
        os._exit(0)
    has_ended = bool(select.select([read], [], [], HANG_SECONDS)[0])
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    return has_ended


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(times.ru_utime + times.ru_stime for times in used)


def say(what: str, took: list[float]) -> None:
    median, most = 1000 * statistics.median(took), 1000 * max(took)
    sys.stdout.write(f"{what}: {median:.1f} ms, at most {most:.1f} ms\n")


if __name__ == "__main__":
    main()
