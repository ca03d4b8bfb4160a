"""Finds out what an ensemble goes by and where it errs: columns that matter, errors, calibration.

All of it is on rows that none of the models asked has seen. `ensemble_figures.py` draws PNGs of
what is found, and the page of a report draws SVGs. Nothing is drawn here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from automl.config import Task
from automl.data.dataset import Dataset, DatasetPart, TableRows
from automl.data.scoring.metrics import (
    Floats,
    Threshold,
    make_predictions,
    predict_labels,
)
from automl.data.scoring.model_findings import (
    calibration_curve,
    confusion_matrix,
    permutation_importances,
)
from automl.models.family import TrainedModel
from automl.models.mean_model import MeanModel
from automl.trial import CalibrationPoint, ColumnImportance, EnsembleFindings

MAX_ROWS = 2_000
"""Largest number of rows to shuffle columns in. A share of errors of this many is within 1 %."""
N_REPEATS = 5
N_IMPORTANCES = 25
"""Largest number of columns whose importances are kept."""
N_CLASSES = 12
N_PAIRS = 500
"""Number of rows whose true and predicted values are kept."""
MAX_NAME_CHARACTERS = 60


def find_in_ensemble(
    data: Dataset,
    outputs: Floats,
    models: Mapping[int, TrainedModel],
    weights: Mapping[int, float],
    *,
    thresholds: Threshold | None = None,
    importance_seconds: float,
) -> EnsembleFindings:
    """Return what an ensemble goes by; without importances if there are too many columns.

    More columns get fewer shuffles in about `importance_seconds`; so many that one shuffle of each
    takes longer have none.

    `outputs` are the ensemble's for `data.judged`; `models` and `weights` are its members', by
    trial. `thresholds` decide the label of each row; None: it is the likeliest class.
    """
    part, asked_models = _unseen_rows(data, models)
    asked_weights = [weights[trial] for trial in asked_models]
    ensemble = MeanModel(list(asked_models.values()), data.task, asked_weights)
    loss, importances = _find_importances(data, part, ensemble, importance_seconds)
    found = EnsembleFindings(
        n_columns=len(data.columns.sources),
        n_rows=len(part) if importances else 0,
        loss=loss,
        importances=importances,
        classes=(),
        confusion=(),
        calibration=(),
        pairs=(),
    )
    if data.task is Task.regression:
        return found._replace(pairs=_value_pairs(data, outputs))
    shares = np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
    labels = predict_labels(shares, thresholds)
    counts = confusion_matrix(labels, data.judged.y, data.classes, n_most=N_CLASSES)
    bins = calibration_curve(shares, data.judged.y)
    return found._replace(
        classes=tuple(name[:MAX_NAME_CHARACTERS] for name in counts.names),
        confusion=tuple(tuple(map(int, row)) for row in counts.n_rows),
        calibration=tuple(
            CalibrationPoint(float(predicted), float(observed), int(n))
            for predicted, observed, n in zip(*bins, strict=True)
        ),
    )


def _unseen_rows(
    data: Dataset, models: Mapping[int, TrainedModel]
) -> tuple[DatasetPart, dict[int, TrainedModel]]:
    """Return up to `MAX_ROWS` rows, and the models to ask, which did not train on them."""
    part, asked_models = data.validation, dict(models)
    if data.folds:
        part = data.train.take(data.folds[0].judged)
        asked_models = {n: m.members[0] for n, m in models.items() if isinstance(m, MeanModel)}
    order = np.random.default_rng(0).permutation(len(part))[:MAX_ROWS]
    return part.take(np.sort(order)), asked_models


def _find_importances(
    data: Dataset, part: DatasetPart, model: TrainedModel, seconds: float
) -> tuple[float, tuple[ColumnImportance, ...]]:
    """Return the loss, and the columns' importances: none if there are too many columns for so many
    `seconds`."""
    unit = data.target_mean, data.target_scale

    def loss(rows: TableRows) -> float:
        outputs = model.outputs(data.columns, rows)
        return make_predictions(data.task, outputs, part.y, *unit, data.loss).scored(["loss"])[
            "loss"
        ]

    begun = time.perf_counter()
    before = loss(part.rows)
    n_columns = len(data.columns.sources)
    n_repeats = n_shuffle_repeats(time.perf_counter() - begun, n_columns, seconds)
    if n_repeats < 1:
        return before, ()
    found = permutation_importances(data.columns, part.rows, loss, repeats=range(n_repeats), seed=0)
    shown = found.iloc[:N_IMPORTANCES]
    return before, tuple(
        ColumnImportance(str(name)[:MAX_NAME_CHARACTERS], float(rise), float(deviation))
        for name, rise, deviation in zip(shown.index, shown.importance, shown["std"], strict=True)
    )


def n_shuffle_repeats(one_seconds: float, n_columns: int, seconds: float) -> int:
    """Return how often each column may be shuffled in so many `seconds`, if one evaluation takes
    `one_seconds`."""
    if not n_columns:
        return 0
    return min(N_REPEATS, int(seconds / max(one_seconds * n_columns, 1e-9)))


def _value_pairs(data: Dataset, outputs: Floats) -> tuple[tuple[float, ...], ...]:
    """Return the true and the predicted values of some rows, in the target's unit."""
    values = outputs[:, 0] * data.target_scale + data.target_mean
    true = data.judged.y.astype(np.float64)
    places = np.random.default_rng(0).permutation(len(true))[:N_PAIRS]
    pairs = np.column_stack([true[places], values[places]])
    return tuple(tuple(float(f"{value:.5g}") for value in pair) for pair in pairs)
