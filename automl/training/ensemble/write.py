"""Makes `ensemble.pt`: models of a study as one, the weighted mean of what they say.

Those that are the best together are chosen by rows that none of them has seen
(`data/selection.py`). The file has the layout of a `refit.pt` of several, with weights.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from automl.config import Task
from automl.data.dataset import Dataset
from automl.data.scores import Floats, predictions
from automl.data.selection import select
from automl.data.thresholds import best_threshold, second_of_two, thresholds_elsewhere
from automl.errors import AutoMLError
from automl.training.ensemble.words import EnsembleFile, Made
from automl.training.folds.judged import judged_outputs
from automl.training.mean_model import mean_outputs
from automl.training.model_state import THRESHOLD
from automl.training.predictor import load_of_table
from automl.training.refit_file import of_members, read, save
from automl.training.resolve import resolve_builder


def write(asked: EnsembleFile) -> Made:
    """Choose the members, and write the file; whole, or the one of before stands.

    Raises AutoMLError where no model can be read.
    """
    data, (outputs, speeds) = asked.dataset, _outputs(asked)
    if not outputs:
        raise AutoMLError(f"{asked.study}: no model of it can be read, so that none can be joined.")
    said = np.stack([_said(of, data) for of in outputs.values()])
    chosen = select(said, data.judged.y.astype(np.float64), data.task, data.loss)
    trials = [list(outputs)[i] for i in chosen.members]
    weights = [chosen.weights[i] for i in chosen.members]
    contents = [read(Path(asked.models[trial])) for trial in trials]
    members = dict(zip(trials, weights, strict=True))
    joined = mean_outputs(np.stack([outputs[trial] for trial in trials]), data.task, weights)
    states = [content["state"] for content in contents]
    own = _threshold(joined, data) if any(THRESHOLD in state for state in states) else {}
    scores = _scores(joined, data, by_threshold=bool(own))
    content = {**of_members(states, members), "metrics": scores, "study": asked.study}
    content["state"] = {**content["state"], **own}
    path = Path(asked.path)
    save(path, content, [Path(asked.models[trial]) for trial in trials])
    return Made(members, scores, speeds)


def _threshold(outputs: Floats, data: Dataset) -> dict[str, float]:
    """That of its labels, as its members have one."""
    return {THRESHOLD: best_threshold(second_of_two(outputs), data.judged.y)}


def _outputs(asked: EnsembleFile) -> tuple[dict[int, Floats], dict[int, float]]:
    """What each model gives for the rows, and how many a second. One that gives no numbers is none
    to be chosen."""
    build = None if asked.build is None else resolve_builder(asked.build)
    found: dict[int, Floats] = {}
    speeds: dict[int, float] = {}
    for trial, path in asked.models.items():
        model = load_of_table(path, build=build)
        data = asked.dataset
        begun = time.perf_counter()
        given = judged_outputs(model.trained, data)
        # With folds each row is asked of one of its models in each division.
        n_asked = sum(len(fold.judged) for fold in data.folds) or len(data.validation)
        speeds[trial] = n_asked / data.n_models / (time.perf_counter() - begun)
        if np.isfinite(given).all():
            found[trial] = given
    return found, speeds


def _said(outputs: Floats, data: Dataset) -> Floats:
    """(N,) what `select` takes."""
    if data.task is Task.regression:
        said: Floats = outputs[:, 0] * data.target_scale + data.target_mean
    else:
        logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        said = np.exp(logs[np.arange(len(logs)), data.judged.y])
    return said


def _scores(outputs: Floats, data: Dataset, *, by_threshold: bool) -> dict[str, float]:
    unit = data.target_mean, data.target_scale
    threshold = None
    if by_threshold:
        threshold = thresholds_elsewhere(second_of_two(outputs), data.judged.y)
    return predictions(data.task, outputs, data.judged.y, *unit, data.loss, threshold).scored()
