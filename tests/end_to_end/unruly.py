"""Objectives that use their process badly, found by `tests.end_to_end.unruly:NAME`."""

from __future__ import annotations

import io
import os
import sys
import threading

import torch

import automl

N_REPORTS = 2_000
WELL_BEHAVED = 5
"""The trial of `breaks_its_process` that only prints, after all that damage what it stands on."""


def reports_without_end(trial: automl.TrialContext) -> None:
    """Never pauses, so that its messages never run out; it would take minutes."""
    for step in range(3_000_000):
        trial.report(step, {"val_loss": 1.0})


def reports_often(trial: automl.TrialContext) -> None:
    """Falls to its best long before the end, and rises after it."""
    for step in range(N_REPORTS):
        trial.report(step, {"val_loss": abs(step - 1_501) / N_REPORTS})


def breaks_its_process(trial: automl.TrialContext) -> float:
    """Each trial but one damages what the next in its process needs; none of them is at fault."""
    match trial.number:
        case 0:
            sys.stdout = os.fdopen(1, "w")  # which closes it when it goes
        case 1:
            sys.stdout.close()
        case 2:
            sys.stdout = sys.stderr = None
            os.close(2)
        case 3:
            sys.stderr.close()
        case 4:
            sys.stdout = io.StringIO()
            os.close(1)
        case 6:  # what the worker does between trials fails, while a thread of the user's lives
            threading.Thread(target=threading.Event().wait).start()
            torch.cuda.is_initialized = _is_broken
        case _:
            print(f"said by trial {trial.number}")  # noqa: T201  looked for in its log
    return float(trial.number)


def _is_broken() -> bool:
    raise RuntimeError("the driver is gone")
