"""Scores models on their study's test rows, and trains an ended trial again to ask its model.

The process may load the libraries that trained the models. Nothing is written to the study.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from automl.config import DataConfig, Task
from automl.data.dataset import Dataset, DatasetPart
from automl.data.load import load_dataset_with_test
from automl.data.scoring.evaluation import constant_thresholds, simplest_baseline
from automl.data.scoring.metrics import Floats, make_predictions
from automl.data.tables.frames import Frame
from automl.data.users_metric import UsersMetric
from automl.errors import AutoMLError
from automl.models.family import NetworkBuilder
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import TrainingSession, open_objective
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.trial import (
    CPU_LABEL,
    LOCAL_HOST,
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
    """Names the models to score, and the data that their study was searched with. Picklable."""

    paths: Mapping[str, str]
    """Path of each model file, by the name of the model."""
    data: DataConfig
    """Data settings of the study; they name a test table, or the share of the test part."""
    users_metric: UsersMetric | None = None
    """The study's metric, if it is a function of the user's."""


@dataclass(frozen=True)
class HeldOutScores:
    """Metrics of models on the test rows of their study."""

    n_rows: int
    """Number of test rows."""
    scores: Mapping[str, Mapping[str, float]]
    """Metrics of each model, by its name."""
    baseline: Mapping[str, float]
    """Metrics of the baseline that predicts the same for all rows."""


def score(job: HeldOutScoringJob) -> HeldOutScores:
    """Score the models of a job. Raises AutoMLError for a table or a file that cannot be used."""
    loaded = load_dataset_with_test(job.data, job.data.test)
    data, part = loaded.dataset, loaded.test
    models = {name: load_table_model(path) for name, path in job.paths.items()}
    unit = data.target_mean, data.target_scale, next(iter(models.values())).value_loss
    outputs = {
        name: outputs_on_part(model, data, part, loaded.test_frame)
        for name, model in models.items()
    }
    own = job.users_metric
    scores = {
        name: make_predictions(
            data.task, outputs[name], part.y, *unit, model.threshold, own
        ).scored()
        for name, model in models.items()
    }
    (constant,) = simplest_baseline(data, part.rows).values()
    threshold = constant_thresholds(part.y, own)
    baseline = make_predictions(data.task, constant, part.y, *unit, threshold, own)
    return HeldOutScores(len(part), scores, baseline.scored())


def outputs_on_part(
    model: Predictor, data: Dataset, part: DatasetPart, frame: Callable[[], Frame]
) -> Floats:
    """Return a model's outputs for a part of its study's data, in the unit of the study's models.

    `frame` returns the raw rows of the part. A refit needs them: it has learned categories and the
    target's unit from more rows, so that its codes and outputs differ from the study's.
    """
    if model.refitted is None:
        return model.outputs(part.rows)
    outputs = model.outputs(model.read_cells(frame())[0])
    if data.task is Task.classification:
        return outputs
    mean, scale = model.unit
    rescaled: Floats = (outputs * scale + mean - data.target_mean) / data.target_scale
    return rescaled


def retrain_trial(
    setup: SessionSetup, number: int, params: Params, seed: int, build: NetworkBuilder | None
) -> Predictor:
    """Train a trial again as a sweep would, in this process on the CPU, and return its best model.

    The model is trained on the data of `setup`, and the best by the study's metric; `seed` is the
    study's. Raises AutoMLError if the trial does not come to its end.
    """
    outcomes: list[TrialEvent] = []

    def on_event(event: TrialEvent) -> Verdict:
        outcomes.append(event)
        return Verdict.GO_ON

    with tempfile.TemporaryDirectory() as folder:
        spec = TrialSpec(number, params, folder, seed)
        placement = Placement((DeviceShare(LOCAL_HOST, CPU_LABEL, 0),))
        TrainingSession(setup.plan, open_objective(setup)).run(spec, placement, on_event)
        last = outcomes[-1]
        if not isinstance(last, FinishedOutcome):
            cause = last.cause if isinstance(last, FailedOutcome) else "no outcome"
            raise AutoMLError(f"trial {number} could not be trained again: {cause}")
        return load_table_model(Path(folder) / BEST_CHECKPOINT_FILE, build=build)
