"""Objectives for workers on a GPU."""

import time
from pathlib import Path

import torch

import automl

GIB = 1024**3
HELD_BYTES = GIB
_PATIENCE_SECONDS = 60.0


def hold(trial: automl.TrialContext) -> None:
    """Takes a GiB and keeps it until its first report was answered."""
    kept = torch.ones(HELD_BYTES, dtype=torch.uint8, device=trial.device)
    for step in range(2):
        trial.report(step, {"val_loss": float(kept[step])})


def take(trial: automl.TrialContext) -> None:
    """Holds as many GiB as its params say, while it reports twice."""
    kept = torch.ones(int(trial.params["gib"] * GIB), dtype=torch.uint8, device=trial.device)
    for step in range(2):
        trial.report(step, {"val_loss": float(kept[step])})
        time.sleep(0.0 if trial.surveying else 0.5)


def meet(trial: automl.TrialContext) -> None:
    """Holds as many GiB as its params say until two such trials hold them at once."""
    kept = torch.ones(int(trial.params["gib"] * GIB), dtype=torch.uint8, device=trial.device)
    trial.report(0, {"val_loss": float(kept[0])})
    if trial.surveying:
        return
    (_study(trial) / f"here-{trial.number}").touch()
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(list(_study(trial).glob("here-*"))) < 2:
        if time.monotonic() > until:
            raise TimeoutError("the other did not start beside it")
        time.sleep(0.05)
    trial.report(1, {"val_loss": float(kept[1])})


def run_out_once(trial: automl.TrialContext) -> None:
    """Wants more than any GPU has, but for the second time it is run."""
    kept = torch.ones(GIB, dtype=torch.uint8, device=trial.device)
    trial.report(0, {"val_loss": float(kept[0])})
    ran_out = trial.directory / "ran-out"
    if not trial.surveying and not ran_out.exists():
        ran_out.touch()
        torch.empty(2**46, dtype=torch.uint8, device=trial.device)
    trial.report(1, {"val_loss": float(kept[1])})


def _study(trial: automl.TrialContext) -> Path:
    """Where one trial leaves word for another."""
    return trial.directory.parent.parent
