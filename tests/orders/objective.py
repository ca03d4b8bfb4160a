"""The objective of the orders, whose trials end as their params say, and hold where a test says.

It runs in a thread of the sweep. `expected_outcome` is what the reference model knows of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import automl

N_STEPS = 3
FAILS_BELOW, GIVES_UP_BELOW = 0.1, 0.25
"""A trial with a smaller `x` fails, or gives up, after its first report."""
CAUSE = "ValueError: x is too small"
HELD = "held"
"""The tag of a trial that holds: how often it has done so."""
HOLD_FILE = "hold"
"""In the folder of the sweep: the number of the first trial that holds after its first report; no
trial holds where there is no such file."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ends that nobody stops."""

    state: str
    value: float | None
    reports: Mapping[int, float]


def reported(x: float, step: int) -> float:
    return x + 0.1 * (N_STEPS - 1 - step)


def expected_outcome(params: Mapping[str, object]) -> Outcome:
    x = float(str(params["x"]))
    reports = {step: reported(x, step) for step in range(N_STEPS)}
    if x < FAILS_BELOW:
        return Outcome("failed", None, {0: reports[0]})
    if x < GIVES_UP_BELOW:
        return Outcome("pruned", reports[0], {0: reports[0]})
    return Outcome("finished", reports[N_STEPS - 1], reports)


def walks(trial: automl.TrialContext) -> None:
    """Report three steps; hold after the first one while the hold file says so."""
    state = trial.restore()
    x = float(trial.params["x"])
    for step in range(0 if state is None else state["step"], N_STEPS):
        report = partial(
            trial.report, step, {"val_loss": reported(x, step)}, partial(dict, step=step)
        )
        report()
        if step == 0:
            if not trial.refit:
                _hold(trial, report)
            if x < FAILS_BELOW:
                raise ValueError("x is too small")
            if x < GIVES_UP_BELOW:
                raise automl.TrialPruned("it gives up")


def _hold(trial: automl.TrialContext, report: partial[None]) -> None:
    """Report the same step again, which changes nothing, until the trial is let go or stopped."""
    is_told = False
    while _holds(trial.number):
        if not is_told:
            with (trial.directory / HELD).open("a+") as file:
                file.write(".")
                file.seek(0)
                trial.set_tag(HELD, len(file.read()))
            is_told = True
        time.sleep(0.05)
        report()


def _holds(number: int) -> bool:
    try:
        return number >= int(Path(HOLD_FILE).read_text())
    except FileNotFoundError:
        return False
