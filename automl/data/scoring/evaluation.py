"""Scores models on rows that no sweep saw, or else on the rows that chose among trials.

A study's table is split again as it was for its trials, so that its own test part is known. A test
table that comes later is scored whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import DataConfig, DataKind, Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.dataset import Dataset, DatasetPart, Label, TableRows, Targets
from automl.data.generated import DISC_CLASSES, PointPurpose, make_disc
from automl.data.load import load_dataset_with_test
from automl.data.scoring.baselines import (
    baseline_outputs_out_of_fold,
    baseline_predictions,
    bootstrap_difference,
    bootstrap_interval,
    bootstrap_metrics,
)
from automl.data.scoring.metrics import Floats, make_predictions
from automl.data.split import draw_stratified_part, split_rows
from automl.data.tables.frames import Frame
from automl.data.tables.table_sources import load_digits_source, load_table_source
from automl.trial import (
    ENSEMBLE_NAME,
    ModelsEvaluated,
    RowsKind,
    ScoreDifference,
    refit_name,
    trial_name,
)


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows whose targets are known, with the baselines that a model has to beat."""

    kind: RowsKind
    digest: str
    """Digest of the rows: equal digests mean the same rows."""
    y: Targets
    task: Task
    unit: tuple[float, float]
    """Mean and scale of the target; 0 and 1 for classes."""
    baselines: Mapping[str, Floats]
    """Outputs of each baseline, like a model's (`family.Model.outputs`), by its name."""
    loss: ValueLoss = SQUARED_ERROR


@dataclass(frozen=True, eq=False)
class EvaluationRows:
    """The data set of a study, and the rows that its models are scored on."""

    dataset: Dataset
    kind: RowsKind
    part: DatasetPart
    digest: str
    """Digest of the rows: equal digests mean the same rows."""
    source: str
    """The origin of the rows, in words."""
    frame: Callable[[], Frame] = field(repr=False)
    """Returns the rows of `part` as raw cells, in the same order."""

    def sample(self, n_rows: int) -> tuple[Frame, npt.NDArray[Any]]:
        """Return at most `n_rows` random rows as raw cells, and their labels or values."""
        places = np.sort(np.random.default_rng(0).permutation(len(self.part))[:n_rows])
        y, classes = self.part.y[places], self.dataset.classes
        return self.frame().iloc[places], np.array(classes, dtype=object)[y] if classes else y

    def judged(self) -> ScoredRows:
        """Return the rows with their baselines, which learn from the rows that train."""
        data = self.dataset
        unit = data.target_mean, data.target_scale
        if self.kind is RowsKind.OUT_OF_FOLD:
            compared = baseline_outputs_out_of_fold(data)
        else:
            compared = baseline_predictions(data, self.part.rows)
        return ScoredRows(self.kind, self.digest, self.part.y, data.task, unit, compared, data.loss)

    @property
    def n_repeats(self) -> int:
        """Return how many more rows than by chance equal a row that trained or chose.

        Rows are equal if all cells and the target are. Chance is estimated from the share of
        validation rows that equal a training row, in proportion to the number of known rows.
        """
        if not self.kind.unseen:
            return 0
        model_data = self.dataset.of_one_model
        train, validation = set(_hashes(model_data.train)), _hashes(model_data.validation)
        share = sum(row in train for row in validation) / len(validation)
        known = _hashes(self.dataset.train) + _hashes(self.dataset.validation)
        by_chance = min(1.0, share * len(known) / len(model_data.train))
        known_rows = set(known)
        n_found = sum(row in known_rows for row in _hashes(self.part))
        return max(0, n_found - round(by_chance * len(self.part)))


def open_evaluation(
    config: DataConfig, own_test_path: str | None, loss: ValueLoss = SQUARED_ERROR
) -> EvaluationRows:
    """Return the rows to score on, by the present `config`.

    `own_test_path` is the value of `data.test_path` when the study was searched, which decides how
    its table is split. Raises ConfigError for a table that cannot be used, or does not match.
    """
    found = load_dataset_with_test(config, own_test_path)
    dataset, part, digest = replace(found.dataset, loss=loss), found.test, found.digest
    if config.test_path is not None:
        source = f"of {config.test_path}"
        return EvaluationRows(dataset, RowsKind.GIVEN, part, digest, source, found.test_frame)
    if len(part):
        source = f"kept from {config.path or dataset.name}"
        return EvaluationRows(dataset, RowsKind.KEPT, part, digest, source, found.test_frame)
    kind, source = RowsKind.VALIDATION, "those by which trials were chosen"
    digest = f"validation {dataset.digest}"
    if dataset.folds:
        kind, source = RowsKind.OUT_OF_FOLD, "each by the models of the folds that left it out"
        digest = f"out-of-fold {dataset.digest}"
    return EvaluationRows(dataset, kind, dataset.judged, digest, source, found.judged_frame)


def score_predictions(
    rows: ScoredRows,
    outputs: Mapping[int, Floats],
    *,
    n_resamples: int,
    seed: int,
    refit: tuple[int | None, Floats] | None = None,
    ensemble: Floats | None = None,
    thresholds: Mapping[str, float | Floats | None] | None = None,
) -> ModelsEvaluated:
    """Return the scores of models and baselines with intervals, and differences from the first.

    `outputs` are those of trials' models, by trial number (`family.Model.outputs`). Out-of-fold,
    each row has the outputs of the folds that left it out. `refit` is the number of the trial that
    was trained again (None: the ensemble was) and the outputs of that refit; `ensemble` has the
    outputs of the ensemble. The first model, with which the others are compared, is the refit, else
    the ensemble, else the first trial's. `thresholds` has the threshold of each model that has one,
    by name.
    """
    named = {} if refit is None else {refit_name(refit[0]): refit[1]}
    named |= {} if ensemble is None else {ENSEMBLE_NAME: ensemble}
    named |= {trial_name(number): trial_outputs for number, trial_outputs in outputs.items()}
    first, *others = named
    predicted = {
        name: make_predictions(
            rows.task, model_outputs, rows.y, *rows.unit, rows.loss, (thresholds or {}).get(name)
        )
        for name, model_outputs in {**named, **rows.baselines}.items()
    }
    scores = {name: predictions.scored() for name, predictions in predicted.items()}
    samples = bootstrap_metrics(predicted, n_resamples, seed)

    def against_first(name: str) -> dict[str, ScoreDifference]:
        n_compared = len(others) if name in others else 1
        return {
            metric: bootstrap_difference(
                metric,
                value - scores[first][metric],
                samples[name][metric] - samples[first][metric],
                n_compared,
            )
            for metric, value in scores[name].items()
        }

    return ModelsEvaluated(
        time=time.time(),
        kind=rows.kind,
        n_rows=len(rows.y),
        digest=rows.digest,
        trials=tuple(outputs),
        scores={
            name: {
                metric: bootstrap_interval(value, samples[name][metric])
                for metric, value in model_scores.items()
            }
            for name, model_scores in scores.items()
        },
        differences={name: against_first(name) for name in scores if name != first},
        refit_of=None if refit is None else refit[0],
        ensembled=ensemble is not None,
        refit_of_ensemble=refit is not None and refit[0] is None,
    )


def evaluation_loss(evaluation: EvaluationRows, outputs: Floats) -> float:
    """Return the loss of a model with these outputs for the rows."""
    data = evaluation.dataset
    scale = data.target_mean, data.target_scale
    predictions = make_predictions(data.task, outputs, evaluation.part.y, *scale, data.loss)
    return predictions.scored(["loss"])["loss"]


def take_training_share(evaluation: EvaluationRows, share: float, seed: int) -> EvaluationRows:
    """Return the evaluation with a share of the training rows, evenly by class.

    The columns stay those that were learned from all training rows.
    """
    train = evaluation.dataset.train
    places = draw_stratified_part(train.y, share, seed)
    return replace(evaluation, dataset=replace(evaluation.dataset, train=train.taking(places)))


def _hashes(part: DatasetPart) -> list[int]:
    """Return a hash of each row's cells and target, equal for equal rows within this process."""
    numbers = np.nan_to_num(part.rows.numbers, nan=np.inf) + 0.0  # one NaN, and no negative zero
    cells = (numbers, part.rows.codes.astype(np.float64), part.y.astype(np.float64)[:, None])
    return [hash(row.tobytes()) for row in np.column_stack(cells)]


def validation_part(
    config: DataConfig, read: Callable[[Any], TableRows]
) -> tuple[DatasetPart, tuple[Label, ...]]:
    """Return the validation rows, and the classes that their targets number.

    With folds they are all rows that train and judge. `read` is the model's `Predictor.read`.
    Raises ConfigError for a table that cannot be read, or lacks columns.
    """
    if config.kind is DataKind.disc:
        return make_disc(
            config.n_validation, config.split_seed, PointPurpose.validation
        ), DISC_CLASSES
    config = replace(config, split_to=None)
    source = load_digits_source() if config.kind is DataKind.digits else load_table_source(config)
    split = split_rows(source.y, config, source.related)
    rows = split.train if split.folds else split.validation
    return DatasetPart(read(source.frame.iloc[rows]), source.y[rows]), source.target.classes
