"""Scores models on rows that no sweep saw, or else on the rows that chose among trials.

A study's table is split again as it was for its trials, so that its own test part is known. A test
table that comes later is scored whole. The baselines are a constant prediction and a linear model
of a network's features (`features.py`), so that the difference is what depth brings.

Intervals are percentiles of the bootstrap over rows (Efron & Tibshirani 1993, chapter 13). All
predictions are scored on the same samples, so that the difference of two scores has an interval of
its own. It is far narrower than the two of the scores: a row that is hard for one model is mostly
hard for the other.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import DataConfig, DataKind, Task
from automl.config.metrics import LARGER_IS_BETTER, SQUARED_ERROR, ValueLoss
from automl.data.dataset import (
    DISC_CLASSES,
    Dataset,
    DatasetPart,
    DiscPart,
    Label,
    TableRows,
    Targets,
    make_disc,
)
from automl.data.features import one_hot_features
from automl.data.load import load_dataset_with_test
from automl.data.scoring.label_thresholds import thresholds_by_costs
from automl.data.scoring.metrics import Floats, JudgedPredictions, Threshold, make_predictions
from automl.data.tables.frames import Frame
from automl.data.users_metric import UsersMetric
from automl.trial import (
    ENSEMBLE_NAME,
    ModelsEvaluated,
    RowsKind,
    ScoreDifference,
    ScoreInterval,
    refit_name,
    trial_name,
)

MAX_LINEAR_ROWS = 100_000
"""Largest number of rows that a linear model learns from: more would move its figures by a
thousandth, and take minutes."""
_MAX_STEPS = 300


def baseline_predictions(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Return outputs like a model's (`family.Model.outputs`) for `rows`, by baseline."""
    own = dataset.encoded
    return {"linear": _linear(own, own.encoded_rows(rows)), **simplest_baseline(dataset, rows)}


def simplest_baseline(dataset: Dataset, rows: TableRows) -> dict[str, Floats]:
    """Return the outputs of the baseline that says the same of all rows, by its name."""
    name = "majority" if dataset.classes else "mean"
    return {name: np.tile(_constant(dataset), (len(rows), 1))}


def baseline_outputs_out_of_fold(dataset: Dataset) -> dict[str, Floats]:
    """Return outputs for `Dataset.judged`. Each row's linear outputs are those of a model that did
    not learn from the row, in the first division of the rows. The constant is one for all rows."""
    linear = np.empty((len(dataset.train), dataset.n_outputs))
    for number, place in enumerate(dataset.folds):
        if place.repeat == 0:
            fold = dataset.fold(number)
            linear[place.judged] = _linear(fold, fold.validation.rows)
    return {
        "linear": linear[dataset.judged_places],
        **simplest_baseline(dataset, dataset.judged.rows),
    }


def _constant(dataset: Dataset) -> Floats:
    """Return (C,) outputs for all rows: logarithms of the classes' shares, or the mean target."""
    if not dataset.classes:
        return np.zeros(1)  # in units of the scaled target
    return constant_outputs(np.bincount(dataset.train.y, minlength=len(dataset.classes)))


def constant_outputs(counts: npt.NDArray[np.integer]) -> Floats:
    """Return (C,) logarithms of the classes' shares, from their numbers of training rows."""
    smoothed = counts + 1.0  # no class is impossible
    logs: Floats = np.log(smoothed / smoothed.sum())
    return logs


def _linear(dataset: Dataset, rows: TableRows) -> Floats:
    from sklearn.exceptions import ConvergenceWarning

    train = _at_most(dataset.train, MAX_LINEAR_ROWS)
    x, x_rows = (
        one_hot_features(dataset.columns, train.rows),
        one_hot_features(dataset.columns, rows),
    )
    with warnings.catch_warnings():
        # A fit that has not converged is a baseline, too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _fitted_outputs(dataset, x, train.y, x_rows)


def _fitted_outputs(
    dataset: Dataset, x: npt.NDArray[np.float32], y: npt.NDArray[Any], x_rows: npt.NDArray[Any]
) -> Floats:
    from sklearn.linear_model import LogisticRegression, Ridge

    if not dataset.classes:
        scaled = (y - dataset.target_mean) / dataset.target_scale
        values: Floats = Ridge().fit(x, scaled).predict(x_rows).astype(np.float64)
        return values[:, None]
    present = np.unique(y)
    if len(present) < 2:  # a part of the rows may hold only one class
        return np.tile(_constant(dataset), (len(x_rows), 1))
    scores = LogisticRegression(max_iter=_MAX_STEPS).fit(x, y).decision_function(x_rows)
    if scores.ndim == 1:  # of two classes, scikit-learn gives only the second one's score
        scores = np.column_stack([np.zeros(len(scores)), scores])
    outputs = np.full((len(x_rows), len(dataset.classes)), np.log(1 / (len(x) + 1)))
    outputs[:, present] = scores
    return outputs


def _at_most(part: DatasetPart, n_rows: int) -> DatasetPart:
    if len(part) <= n_rows:
        return part
    return part.take(np.sort(np.random.default_rng(0).permutation(len(part))[:n_rows]))


CONFIDENCE = 0.95
N_RESAMPLES = 1000
"""Number of bootstrap samples that the intervals are computed from. With fewer than 100 the ends of
a 95 % interval are seldom samples."""
_CELLS_AT_ONCE = 2**20
"""Largest number of sample weights that are held at once, 8 bytes each."""


def bootstrap_metrics(
    named: Mapping[str, JudgedPredictions],
    n_resamples: int,
    seed: int,
    metrics: Collection[str] | None = None,
) -> dict[str, dict[str, Floats]]:
    """Return (n_resamples,) scores by name of the predictions and by metric; None: all metrics.

    All predictions are of the same rows, and are scored on the same samples of them.
    """
    n_rows = next(iter(named.values())).n_rows
    assert all(predictions.n_rows == n_rows for predictions in named.values()), "the same rows"
    parts: dict[str, dict[str, list[Floats]]] = {name: {} for name in named}
    for weights in _samples(n_rows, n_resamples, seed):
        for name, predictions in named.items():
            for metric, values in predictions.scores(weights, metrics).items():
                parts[name].setdefault(metric, []).append(values)
    return {
        name: {metric: np.concatenate(values) for metric, values in own.items()}
        for name, own in parts.items()
    }


def bootstrap_interval(value: float, resampled: Floats, n_compared: int = 1) -> ScoreInterval:
    """Return a score with its interval at 95 %.

    The 95 % hold for `n_compared` intervals together (Bonferroni).
    """
    known = resampled[np.isfinite(resampled)]
    if not len(known):
        return ScoreInterval(value, math.nan, math.nan)
    beyond = (1 - CONFIDENCE) / n_compared / 2
    low, high = np.quantile(known, [beyond, 1 - beyond])
    return ScoreInterval(value, float(low), float(high))


def bootstrap_difference(
    metric: str,
    value: float,
    resampled: Floats,
    n_compared: int = 1,
    users_metric: UsersMetric | None = None,
) -> ScoreDifference:
    """Return how much a model's metric is above another model's, with an interval and a verdict.

    `value` and `resampled` are differences on the same rows and samples. The 95 % hold for
    `n_compared` intervals together.
    """
    interval = bootstrap_interval(value, resampled, n_compared)
    if not interval.low > 0 and not interval.high < 0:
        return ScoreDifference(*interval, "may be chance")
    better = (interval.low > 0) == larger_is_better(metric, users_metric)
    return ScoreDifference(*interval, "better" if better else "worse")


def larger_is_better(metric: str, users_metric: UsersMetric | None) -> bool:
    """Return whether large values of a metric of predictions are good."""
    if users_metric is not None and metric == users_metric.name:
        return users_metric.larger_is_better
    return metric in LARGER_IS_BETTER


def _samples(n_rows: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """Yield (B, N) counts: how often each sample draws each row; B is limited by memory."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // n_rows)
    for begin in range(0, n_resamples, at_once):
        n = min(at_once, n_resamples - begin)
        drawn = rng.integers(0, n_rows, (n, n_rows))
        drawn += n_rows * np.arange(n)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=n * n_rows)
        yield counts.reshape(n, n_rows).astype(np.float64)


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
    users_metric: UsersMetric | None = None
    """The study's metric, if it is a function of the user's."""


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
        return ScoredRows(
            self.kind,
            self.digest,
            self.part.y,
            data.task,
            unit,
            compared,
            data.loss,
            data.users_metric,
        )

    def scored(
        self,
        outputs: Floats,
        threshold: Threshold | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the scores of a model with these outputs for the rows, by metric."""
        data = self.dataset
        unit = data.target_mean, data.target_scale
        y, loss = self.part.y, data.loss
        return make_predictions(data.task, outputs, y, *unit, loss, threshold).scored(names)

    @property
    def n_repeats(self) -> int:
        """Return how many more rows than by chance equal a row that trained or chose.

        Rows are equal if all cells and the target are. Chance is estimated from the share of
        validation rows that equal a training row, in proportion to the number of known rows.
        """
        if not self.kind.unseen:
            return 0
        model_data = self.dataset.first_fold
        train, validation = set(_hashes(model_data.train)), _hashes(model_data.validation)
        share = sum(row in train for row in validation) / len(validation)
        known = _hashes(self.dataset.train) + _hashes(self.dataset.validation)
        by_chance = min(1.0, share * len(known) / len(model_data.train))
        known_rows = set(known)
        n_found = sum(row in known_rows for row in _hashes(self.part))
        return max(0, n_found - round(by_chance * len(self.part)))


def open_evaluation(
    config: DataConfig,
    own_test: str | None,
    loss: ValueLoss = SQUARED_ERROR,
    users_metric: UsersMetric | None = None,
) -> EvaluationRows:
    """Return the rows to score on, by the present `config`.

    `own_test` is the value of `data.test` when the study was searched, which decides how its table
    is split. `users_metric` is the study's, if it is a function of the user's. Raises ConfigError
    for a table that cannot be used, or does not match.
    """
    found = load_dataset_with_test(config, own_test)
    own = None if users_metric is None else users_metric.of_classes(found.dataset.classes)
    dataset = replace(found.dataset, loss=loss, users_metric=own)
    part, digest = found.test, found.digest
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


def constant_thresholds(y: Targets, users_metric: UsersMetric | None) -> Threshold | None:
    """Return what decides the labels of a baseline: thresholds by what a function of the user's
    takes for wrong labels; None: the likeliest class."""
    return None if users_metric is None else thresholds_by_costs(y, users_metric)


def score_predictions(
    rows: ScoredRows,
    outputs: Mapping[int, Floats],
    *,
    n_resamples: int,
    seed: int,
    refit: tuple[int | None, Floats] | None = None,
    ensemble: Floats | None = None,
    thresholds: Mapping[str, Threshold | None] | None = None,
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
    own = rows.users_metric
    by_costs = {name: constant_thresholds(rows.y, own) for name in rows.baselines}
    all_thresholds = {**by_costs, **(thresholds or {})}
    predicted = {
        name: make_predictions(
            rows.task, outputs, rows.y, *rows.unit, rows.loss, all_thresholds.get(name), own
        )
        for name, outputs in {**named, **rows.baselines}.items()
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
                own,
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
    return evaluation.scored(outputs, names=["loss"])["loss"]


def take_training_share(evaluation: EvaluationRows, share: float, seed: int) -> EvaluationRows:
    """Return the evaluation with a share of the training rows, evenly by class.

    The columns stay those that were learned from all training rows.
    """
    train = evaluation.dataset.train
    from automl.data.split import draw_stratified_part  # loads scikit-learn, as a sweep need not

    places = draw_stratified_part(train.y, share, seed)
    return replace(evaluation, dataset=replace(evaluation.dataset, train=train.take(places)))


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
        return make_disc(config.n_validation, config.split_seed, DiscPart.validation), DISC_CLASSES
    from automl.data.split import split_rows
    from automl.data.tables.table_sources import load_digits_source, load_table_source

    source = load_digits_source() if config.kind is DataKind.digits else load_table_source(config)
    split = split_rows(source.y, config, source.related, source.frame.shape[1])
    rows = split.train if split.folds else split.validation
    return DatasetPart(read(source.frame.iloc[rows]), source.y[rows]), source.target.classes
