"""Functions of a user's, to be timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import automl

HERE = "tests.running.trials.timed_objectives"
STEP_SECONDS, N_STEPS = 0.01, 5
"""Number of steps of `trains_a_little`, each of which takes at least `STEP_SECONDS`."""


def trains(trial: automl.TrialContext) -> None:
    """More epochs than anybody waits for."""
    assert os.environ["AUTOML_GAIN"] == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert str(trial.directory).startswith(os.environ["TMPDIR"])
    net = torch.nn.Linear(8, int(trial.params["width"]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(10**9):
        for _ in range(10):
            optimizer.zero_grad()
            net(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        trial.report(epoch, {"val_loss": 0.5}, checkpoint=lambda: {"net": net.state_dict()})


def trains_for_ever(trial: automl.TrialContext) -> None:
    """Train without end, and report nothing."""
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    while True:
        weight.square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def trains_a_little(trial: automl.TrialContext) -> None:
    """Train a few steps, to the end."""
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(N_STEPS):
        time.sleep(STEP_SECONDS)
        weight.square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    trial.report(0, {"val_loss": 0.5})


def reports_only(trial: automl.TrialContext) -> None:
    """An optimizer of its own."""
    for step in range(10**9):
        trial.report(step, {"val_loss": float(torch.ones(100).sum())})


def catches_all(trial: automl.TrialContext) -> None:
    """Ends for nobody, and has a program that runs on."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(str(trial.params["pid_file"])).write_text(f"{os.getpid()} {child.pid}")
    while True:
        try:
            trains_a_little(trial)
            time.sleep(0.01)  # not to take a core for as long as it is let
        except BaseException:  # noqa: BLE001  as some do
            continue


def raises(trial: automl.TrialContext) -> None:
    raise ValueError("the rows\nare odd")
