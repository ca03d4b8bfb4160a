"""Objectives to be surveyed in a process of their own; some should not be let near a machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

import automl

HERE = "tests.running.trials.surveyed_objectives"


def trains(trial: automl.TrialContext) -> None:
    net = nn.Linear(64, int(trial.params.get("width", 10))).to(trial.device)
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(4):
        optimizer.zero_grad()
        net(torch.randn(32, 64).to(trial.device)).sum().backward()
        optimizer.step()
        trial.report(step, {"val_loss": 0.5}, checkpoint=lambda: {"net": net.state_dict()})


def tells_where_it_is(trial: automl.TrialContext) -> None:
    """Trains where all is as promised."""
    assert trial.surveying
    assert os.environ["AUTOML_SURVEY"] == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["WANDB_MODE"] == "disabled"
    folder = os.environ["TMPDIR"]
    assert "automl-survey-" in folder
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{folder}/mlflow.db"
    assert "MLFLOW_RUN_ID" not in os.environ
    assert os.getpriority(os.PRIO_PROCESS, 0) >= 10
    assert str(trial.directory).startswith(folder)
    assert sys.stdin.read() == ""
    assert len(sys.argv) == 1
    trains(trial)


def writes_and_prints(trial: automl.TrialContext) -> None:
    os.environ["WRITTEN"] = "there"
    (trial.directory / "model.pt").write_bytes(b"x" * 1000)
    print("much" * 1000)  # noqa: T201
    trains(trial)


def raises(trial: automl.TrialContext) -> None:
    trains(trial)
    raise ValueError("the rows\nare odd")


def exits(trial: automl.TrialContext) -> None:
    sys.exit(3)


def exits_at_once(trial: automl.TrialContext) -> None:
    os._exit(3)


def crashes(trial: automl.TrialContext) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(trial: automl.TrialContext) -> None:
    while True:
        time.sleep(1)


def blocks_signals_and_hangs(trial: automl.TrialContext) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    hangs(trial)


def eats_memory(trial: automl.TrialContext) -> None:
    kept = [bytearray(b"x" * 2**20) for _ in range(2**16)]
    assert kept


def eats_memory_in_children(trial: automl.TrialContext) -> None:
    for _ in range(8):
        if os.fork() == 0:
            kept = b"x" * (200 * 2**20)
            time.sleep(600)
            assert kept
    time.sleep(600)


def fills_the_disk(trial: automl.TrialContext) -> None:
    with (trial.directory / "large").open("wb") as file:
        while True:
            file.write(b"x" * 2**20)


def leaves_a_daemon(trial: automl.TrialContext) -> None:
    """Leave a process in a session of its own, whose parent has gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(trial.params["pid_file"]).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not Path(trial.params["pid_file"]).exists():
        time.sleep(0.01)
    trains(trial)


def leaves_a_daemon_and_crashes(trial: automl.TrialContext) -> None:
    leaves_a_daemon(trial)
    crashes(trial)


def serves(trial: automl.TrialContext) -> None:
    """A thread that would keep the process alive, and a program of its own."""
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.accept).start()
    subprocess.Popen(["sleep", "600"])
    trains(trial)
