"""Objectives as a user writes them, found by `tests.objectives.objectives:NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import torch

import automl
from automl.in_trial.reports.outcomes import RankDiedError

ONE_HALF: tuple[object, ...] = (
    np.array(0.5),
    np.array([0.5]),
    np.array([[0.5]]),
    np.float32(0.5),
    Decimal("0.5"),
    Fraction(1, 2),
    torch.tensor(0.5, requires_grad=True),
    torch.tensor([0.5], requires_grad=True, dtype=torch.bfloat16),
    pd.Series([0.5]),
    pd.Series([0.5], dtype="Float32").iloc[0],
)
"""One number as libraries give it."""


def returns_a_number(trial: automl.TrialContext) -> float:
    return 0.25


def reports_only(trial: automl.TrialContext) -> None:
    for step, loss in enumerate([0.5, 0.2, 0.3]):
        trial.report(step, {"val_loss": loss})


def reports_another_metric(trial: automl.TrialContext) -> None:
    trial.report(0, {"loss": 0.5, "acc": 0.9})


def reports_nan(trial: automl.TrialContext) -> None:
    trial.report(0, {"val_loss": float("nan")})


def does_nothing(trial: automl.TrialContext) -> None:
    return


def returns_nan(trial: automl.TrialContext) -> float:
    return float("nan")


def returns_a_string(trial: automl.TrialContext) -> str:
    return "1.5"


def returns_a_tensor(trial: automl.TrialContext) -> torch.Tensor:
    return torch.tensor(0.5)


def returns_metrics(trial: automl.TrialContext) -> dict[str, float]:
    return {"val_loss": 0.5, "acc": 0.9}


def reports_and_returns_metrics(trial: automl.TrialContext) -> dict[str, float]:
    for step, loss in enumerate([0.5, 0.2, 0.3]):
        trial.report(step, {"val_loss": loss}, lambda: {})
    return {"val_loss": 0.25, "test_acc": 0.9}


def returns_another_metric(trial: automl.TrialContext) -> dict[str, float]:
    return {"acc": 0.9}


def returns_a_text_among_metrics(trial: automl.TrialContext) -> dict[str, object]:
    return {"val_loss": 0.5, "note": "good"}


def takes_params_by_name(lr: float, width: int, depth: int = 2) -> float:
    return lr * width * depth


def raises(trial: automl.TrialContext) -> float:
    raise ValueError("the rows\nare odd")


def interrupts_itself(trial: automl.TrialContext) -> float:
    raise KeyboardInterrupt("no more of this")


def exits(trial: automl.TrialContext) -> float:
    sys.exit("cannot go on")


def looks_up_a_missing_param(trial: automl.TrialContext) -> float:
    return float(trial.params["lrr"])


def looks_up_elsewhere(trial: automl.TrialContext) -> float:
    return float({**trial.params}["lrr"])


def passes_params_on(trial: automl.TrialContext) -> float:
    def build(depth: int) -> float:
        return float(depth)

    return build(**trial.params)


def runs_out_of_memory(trial: automl.TrialContext) -> float:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def loses_its_gpu(trial: automl.TrialContext) -> float:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCompile with …")


def wants_a_gpu_on_the_host(trial: automl.TrialContext) -> float:
    raise RuntimeError("No CUDA GPUs are available")  # torch's words where all are hidden


def has_a_bug_on_its_gpu(trial: automl.TrialContext) -> float:
    raise RuntimeError("CUDA error: device-side assert triggered")


def asks_the_host_for_too_much(trial: automl.TrialContext) -> float:
    return float(torch.empty(2**55).sum())


def asks_python_for_too_much(trial: automl.TrialContext) -> float:
    return float(len(bytearray(2**60)))


def prunes_itself(trial: automl.TrialContext) -> float:
    trial.report(0, {"val_loss": 0.5})
    raise automl.TrialPruned("hopeless")


def prunes_itself_at_once(trial: automl.TrialContext) -> float:
    raise automl.TrialPruned("hopeless")


def swallows_everything(trial: automl.TrialContext) -> float:
    for step in range(3):
        try:
            trial.report(step, {"val_loss": 1.0 + step}, lambda: {})
        except BaseException:  # noqa: BLE001  what users write
            continue
    return 0.0


@automl.objective(params=["lr", "depth"], optional=["seed"], metrics=["val_loss", "acc"])
def declared(trial: automl.TrialContext) -> float:
    return 0.0


def takes_two(trial: automl.TrialContext, config: object) -> float:
    return 0.0


no_function: int = 3

make: Callable[[automl.TrialContext], float] = returns_a_number


def loses_a_process(trial: automl.TrialContext) -> None:
    raise RankDiedError("process 2 of 2 ended")
