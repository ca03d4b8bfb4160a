"""Models scored on their study's test rows, in a process that may load what trained them.

A trial trained again, as a sweep would train it: in this process, on the CPU, to its best model.

For questions about a trial that has ended; nothing of it goes to its study.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from automl.config import DataConfig, Task
from automl.data.dataset import Dataset, DatasetPart
from automl.data.load import load_with_test
from automl.data.scoring.baselines import simplest_baseline
from automl.data.scoring.metrics import Floats, make_predictions
from automl.data.tables.frames import Frame
from automl.errors import AutoMLError
from automl.models.family import NetworkBuilder
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import TrainingSession, open_objective
from automl.record.study_files import BEST
from automl.trial import (
    HOST,
    ON_CPU,
    DeviceShare,
    FailedOutcome,
    FinishedOutcome,
    Params,
    Placement,
    TrialEvent,
    TrialSpec,
    Verdict,
)


@dataclass(frozen=True)
class HeldOutScoringJob:
    """What is asked. Picklable."""

    paths: Mapping[str, str]
    """Of the models' files, by what they are called."""
    data: DataConfig
    """As the study was searched: it names a test table, or the share that is the test part."""


@dataclass(frozen=True)
class HeldOutScores:
    """What is answered."""

    n_rows: int
    scores: Mapping[str, Mapping[str, float]]
    """Of each model."""
    baseline: Mapping[str, float]
    """Of that which says the same of all rows."""


def score(asked: HeldOutScoringJob) -> HeldOutScores:
    """Raises AutoMLError for a table or a file that cannot be used."""
    from automl.models.predictor import load_table_model

    found = load_with_test(asked.data, asked.data.test_path)
    data, part = found.dataset, found.test
    models = {name: load_table_model(path) for name, path in asked.paths.items()}
    unit = data.target_mean, data.target_scale, next(iter(models.values())).value_loss
    outputs = {n: outputs_on_part(of, data, part, found.test_frame) for n, of in models.items()}
    told = {
        name: make_predictions(data.task, outputs[name], part.y, *unit, model.threshold).scored()
        for name, model in models.items()
    }
    (constant,) = simplest_baseline(data, part.rows).values()
    return HeldOutScores(
        len(part), told, make_predictions(data.task, constant, part.y, *unit).scored()
    )


def outputs_on_part(
    model: Predictor, data: Dataset, part: DatasetPart, frame: Callable[[], Frame]
) -> Floats:
    """What the model of a study with this data gives for a part of it, whose rows as they came
    `frame` gives, in the unit of the study's models.

    Of more rows a refit learned which categories there are, and the target's unit: its codes and
    its outputs are others than theirs.
    """
    if model.refitted is None:
        return model.outputs(part.rows)
    outputs = model.outputs(model.read(frame()))
    if data.task is Task.classification:
        return outputs
    mean, scale = model.unit
    found: Floats = (outputs * scale + mean - data.target_mean) / data.target_scale
    return found


def retrain_trial(
    setup: SessionSetup, number: int, params: Params, seed: int, build: NetworkBuilder | None
) -> Predictor:
    """The best model of the trial on the data of `setup`, by the study's metric; `seed` is the
    study's. Raises AutoMLError where it does not come to its end."""
    outcomes: list[TrialEvent] = []

    def on_event(event: TrialEvent) -> Verdict:
        outcomes.append(event)
        return Verdict.GO_ON

    with tempfile.TemporaryDirectory() as folder:
        spec = TrialSpec(number, params, folder, seed)
        placement = Placement((DeviceShare(HOST, ON_CPU, 0),))
        TrainingSession(setup.plan, open_objective(setup)).run(spec, placement, on_event)
        last = outcomes[-1]
        if not isinstance(last, FinishedOutcome):
            cause = last.cause if isinstance(last, FailedOutcome) else "no outcome"
            raise AutoMLError(f"trial {number} could not be trained again: {cause}")
        return load_table_model(Path(folder) / BEST, build=build)
