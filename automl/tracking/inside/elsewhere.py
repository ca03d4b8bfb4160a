"""A program of another environment: its MLflow does not know a trial's store.

What it logs goes where it is set up there, which is said; or, where the user wants it in the
trial's run (`tracking.inside=redirect`), it is given that run by the variables that every MLflow
reads. Its values are then in MLflow alone: no events, so that nothing of it prunes or can be
rebuilt. Joined is the first run that it begins, as MLflow has it; a program that sets an experiment
before is refused by MLflow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from automl.tracking.confirmed import delivered, delivered_to
from automl.tracking.inside.running import remark

_MLFLOW = "lib/python3*/*-packages/mlflow*-*.dist-info"
"""Below the environment's folder; mlflow-skinny is enough."""
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_Found = TypeVar("_Found")


def has_mlflow(program: Path) -> bool:
    """Whether the environment that a program is installed in has MLflow, as far as can be seen."""
    return next(program.parent.parent.glob(_MLFLOW), None) is not None


def _run_of(log: Path, trial: int) -> str | None:
    found = delivered(log)
    return None if found is None else found.runs.get(trial)


class Elsewhere:
    """What such programs are given; for one process that carries trials out, and its threads.

    `ask` is called while it waits, and may raise what ends the trial.
    """

    def __init__(self, uri: str, *, redirect: bool) -> None:
        self._uri, self._redirect = uri, redirect
        self._wait_seconds = _WAIT_SECONDS
        self._is_store_there = False

    def variables(
        self, program: Path, log: Path, trial: int, ask: Callable[[], None]
    ) -> Mapping[str, str]:
        """For a trial of the study of this event log."""
        if not has_mlflow(program):
            return {}
        if self._redirect:
            run = self._wait(lambda: _run_of(log, trial), ask)
            if run is not None:
                return {"MLFLOW_TRACKING_URI": self._uri, "MLFLOW_RUN_ID": run}
            remark("MLflow has no run of the trial yet, so that its program goes on without it")
            return {}
        remark(
            f"{program} is of another environment: what it logs goes where it is set up there, and "
            "neither into the trial's run nor to the pruner. To have it in the run: "
            "tracking.inside=redirect, or run it by this environment's Python"
        )
        if not self._is_store_there:  # two that made one store at a time would fail
            self._is_store_there = self._wait(lambda: delivered_to(log), ask) is not None
        return {}

    def _wait(self, find: Callable[[], _Found | None], ask: Callable[[], None]) -> _Found | None:
        """What is found in time. Once it was not, trials are not held up for it any more."""
        ends = time.monotonic() + self._wait_seconds
        while (found := find()) is None and time.monotonic() < ends:
            ask()
            time.sleep(_LOOK_SECONDS)
        if found is None:
            self._wait_seconds = 0.0
        return found
