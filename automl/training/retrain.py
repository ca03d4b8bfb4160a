"""A trial trained again, as a sweep would train it: in this process, on the CPU, to its best model.

For questions about a trial that has ended; nothing of it goes to its study.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from automl.errors import AutoMLError
from automl.record.files import BEST
from automl.training.family import Builder
from automl.training.plan import SessionSetup
from automl.training.predictor import Predictor, load_of_table
from automl.training.session import TrainingSession, open_objective
from automl.trial import (
    HOST,
    ON_CPU,
    Failed,
    Finished,
    Params,
    Placement,
    Share,
    TrialEvent,
    TrialSpec,
    Verdict,
)


def retrained(
    setup: SessionSetup, number: int, params: Params, seed: int, build: Builder | None
) -> Predictor:
    """The best model of the trial on the data of `setup`, by the study's metric; `seed` is the
    study's. Raises AutoMLError where it does not come to its end."""
    outcomes: list[TrialEvent] = []

    def on_event(event: TrialEvent) -> Verdict:
        outcomes.append(event)
        return Verdict.GO_ON

    with tempfile.TemporaryDirectory() as folder:
        spec = TrialSpec(number, params, folder, seed)
        placement = Placement((Share(HOST, ON_CPU, 0),))
        TrainingSession(setup.plan, open_objective(setup)).run(spec, placement, on_event)
        last = outcomes[-1]
        if not isinstance(last, Finished):
            cause = last.cause if isinstance(last, Failed) else type(last).__name__
            raise AutoMLError(f"trial {number} could not be trained again: {cause}")
        return load_of_table(Path(folder) / BEST, build=build)
