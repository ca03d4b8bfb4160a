"""Holds what the heavy sides of scikit-learn's families share: training and prediction. No torch.

`TableHeavySide` is for families that fit a table round by round and report each round,
`FeatureHeavySide` for those that fit one-hot features in one go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, TableRows, Targets
from automl.data.features import n_features, one_hot_features
from automl.data.scoring.metrics import Floats, make_predictions
from automl.in_trial.goal import Patience
from automl.in_trial.trial_context import TrialContext
from automl.models.families.tree_arrays import TreeArrays
from automl.models.family import EstimatorSetup, NetworkBuilder, PackKey, TrainedModel
from automl.models.judged_rows import JudgedTargets, ReportScores
from automl.models.model_file import (
    check_content,
    check_unpacked_size,
    make_model_state,
    tensors_to_arrays,
)


@dataclass(frozen=True, eq=False)
class ClassScoreLayout:
    """Maps the outputs of a fitted model to the classes of the table, or to scaled values.

    Classes missing from the training rows get the constant score `absent_score`.
    """

    n_outputs: int
    """Number of classes of the table; 1 for regression."""
    present: npt.NDArray[np.int32]
    """Numbers of the classes that the training rows have; empty for regression."""
    absent_score: float
    """Score of each class that the training rows lack."""
    unit: tuple[float, float] | None = None
    """Mean and scale of the target, if the model gives logarithms of rates; else None. Rates are
    scaled by them, because other values are scaled, too."""

    @classmethod
    def from_dataset(cls, data: Dataset, present: npt.NDArray[Any]) -> ClassScoreLayout:
        """Make the layout of a model fitted to `data`, whose classes in its order are `present`."""
        absent_score = -float(np.log(len(data.train) + 1))
        gives_rates = data.loss.name == "poisson"
        unit = (data.target_mean, data.target_scale) if gives_rates else None
        return cls(data.n_outputs, np.asarray(present, dtype=np.int32), absent_score, unit)

    @property
    def n_fit_outputs(self) -> int:
        """Numbers that a fit gives for a row. With two classes, it is only the second's score."""
        return len(self.present) if len(self.present) > 2 else 1

    def outputs(self, fit_outputs: Floats) -> Floats:
        """Return outputs (N, n_outputs) for the outputs of a fit (N, n_fit_outputs)."""
        if self.unit is not None:
            rates: Floats = (np.exp(fit_outputs) - self.unit[0]) / self.unit[1]
            return rates
        if not len(self.present):
            return fit_outputs
        if len(self.present) == 2:
            fit_outputs = np.column_stack([np.zeros(len(fit_outputs)), fit_outputs])
        out = np.full((len(fit_outputs), self.n_outputs), self.absent_score)
        out[:, self.present] = fit_outputs
        return out

    def plain(self) -> dict[str, Any]:
        """Return the layout as plain values for a checkpoint."""
        own = {} if self.unit is None else {"unit": list(self.unit)}
        return {
            "n_outputs": self.n_outputs,
            "present": self.present,
            "absent": self.absent_score,
            **own,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ClassScoreLayout:
        """Read what `plain` returned. Raises ValueError for values that contradict each other."""
        n_outputs, present, absent = plain["n_outputs"], plain["present"], plain["absent"]
        check_content(type(n_outputs) is int and n_outputs >= 1, "a number of classes", n_outputs)
        is_array = isinstance(present, np.ndarray) and present.dtype == np.int32
        check_content(is_array and present.ndim == 1, "no classes", type(present))
        in_range = bool(((present >= 0) & (present < n_outputs)).all())
        check_content(in_range and len(set(present.tolist())) == len(present), "classes", n_outputs)
        check_content(
            len(present) != 1 and (len(present) > 0 or n_outputs == 1), "classes", len(present)
        )
        check_content(len(present) <= n_outputs <= max(1, MAX_CLASSES), "classes", n_outputs)
        check_content(type(absent) is float and np.isfinite(absent), "no score", absent)
        return cls(n_outputs, present, absent, _unit(plain.get("unit"), n_outputs))


def _unit(plain: Any, n_outputs: int) -> tuple[float, float] | None:
    if plain is None:
        return None
    check_content(isinstance(plain, list | tuple) and len(plain) == 2, "no unit", plain)
    fits = all(type(x) is float and np.isfinite(x) for x in plain) and plain[1] > 0
    check_content(fits and n_outputs == 1, "no unit", plain)
    return plain[0], plain[1]


MAX_CLASSES = 2**20
"""Largest number of classes that a model file may have: each row gets a score for each class."""


def single_class_scores(data: Dataset) -> tuple[ClassScoreLayout, Floats]:
    """Return a layout and constant outputs (n_fit_outputs,) for training rows of only one class.

    No model can be fitted to them. The scores are logarithms of the classes' shares, smoothed so
    that no class is impossible.
    """
    classes = ClassScoreLayout.from_dataset(data, np.arange(data.n_outputs))
    counts = np.bincount(data.train.y, minlength=data.n_outputs) + 1.0
    logs: Floats = np.log(counts / counts.sum())
    return classes, logs[1:] - logs[:1] if classes.n_fit_outputs == 1 else logs


class ModelGraph(Protocol):
    """A graph of operators to which a model's `draw` adds its arithmetic; it belongs to `export`.

    Arrays are named by strings. Their first axis is the B rows of a batch.
    """

    @property
    def one_hot(self) -> str:
        """Name of the one-hot features (B, D)."""

    @property
    def tree_view(self) -> str:
        """Name of the columns as trees take them (B, F)."""

    @property
    def spread_view(self) -> str:
        """Name of `tree_view` with a column for each value of some categories (B, F')."""

    def add(self, operator: str, *inputs: str) -> str:
        """Add an operator of ONNX, and return the name of its result."""

    def constant(self, value: npt.ArrayLike) -> str:
        """Add float64 numbers, and return their name."""

    def clipped(self, numbers: str, low: float, high: float) -> str:
        """Add the limits of numbers, and return the name of the limited numbers."""

    def joined(self, parts: Sequence[str]) -> str:
        """Add a join of columns, and return its name."""

    def every_row(self, values: Floats) -> str:
        """Add an array (B, K) that has the same K values in each row, and return its name."""

    def tree_sums(self, trees: TreeArrays, view: str, n_groups: int = 1) -> str:
        """Add what `TreeArrays.sums` computes of a view, and return the name of the sums."""

    def class_outputs(self, classes: ClassScoreLayout, given: str) -> str:
        """Add what `ClassScoreLayout.outputs` computes, and return the name of the outputs."""


class CpuModel:
    """The part of a `family.TrainedModel` that predicts with numpy and has no network."""

    @property
    def module(self) -> None:
        return None

    def to(self, device: str) -> None:
        """Do nothing: the model always computes on the CPU."""


@dataclass(frozen=True, eq=False)
class TrialFit:
    """What a family needs to fit the model of one trial."""

    family: Any
    data: Dataset
    params: Any
    """The trial's params, as the family's `params` returned them."""
    seed: int
    n_rounds: int
    """Number of reports of a whole trial."""
    n_threads: int
    device: str = "cpu"
    """The trial's device, named as in torch; only families that train with torch get a GPU."""
    state: Mapping[str, Any] | None = None
    """State of the last checkpoint, to continue from; None: the trial starts."""

    @property
    def targets(self) -> npt.NDArray[Any]:
        """Targets (N,) of the training rows: class numbers, or float64 values in units of the
        target's scale. Counts (Poisson) are not scaled."""
        data = self.data
        if data.task is Task.classification:
            return data.train.y
        if data.loss.name == "poisson":
            return data.train.y
        return (data.train.y - data.target_mean) / data.target_scale

    @property
    def class_weight(self) -> str | None:
        """The argument `class_weight` of scikit-learn's classifiers."""
        weight: str = self.params.class_weight
        return None if weight == "none" else weight

    @property
    def n_done(self) -> int:
        """Number of rounds that were reported before the trial was interrupted."""
        return 0 if self.state is None else int(self.state["epoch"]) + 1


def row_weights(trial_fit: TrialFit) -> Floats | None:
    """Return the weights (N,) of training rows that make all classes count the same; None: all rows
    count the same, as the trial's params say."""
    if trial_fit.class_weight is None:
        return None
    _, places, counts = np.unique(trial_fit.targets, return_inverse=True, return_counts=True)
    weights: Floats = (len(places) / (len(counts) * counts))[places]
    return weights


@dataclass(frozen=True, eq=False)
class FittedRound:
    """A model after a round, with its outputs for the report."""

    round: int
    train: tuple[Floats, Targets]
    """Outputs for the training rows, or for a sample of them, and their targets."""
    validation: Floats
    """Outputs for the validation rows."""
    get_model: Callable[[], Mapping[str, Any]]
    """Returns the model as the state that `HeavySide.read_model` takes."""
    get_state: Callable[[], Mapping[str, Any]] = dict
    """Returns what the family needs to continue; empty if it trains anew up to there."""


OnRound: TypeAlias = Callable[[FittedRound], None]


class _FitStoppedError(Exception):
    """Raised to end a fit from within, when the patience for a better value is over."""


class TableEstimator:
    """A `family.TrialEstimator` that lets a `TableHeavySide` fit trials and limits their
    threads."""

    def __init__(self, side: TableHeavySide, setup: EstimatorSetup) -> None:
        self._side, self._setup = side, setup

    def __call__(self, trial: TrialContext) -> None:
        family, n_threads = self._setup.family, self._setup.n_threads
        goal, training = self._setup.goal, self._setup.training
        state = trial.restore()
        trial_fit = TrialFit(
            family=family,
            data=self._setup.dataset,
            params=family.params(trial.params),
            seed=trial.seed,
            n_rounds=family.n_reports(training),
            n_threads=n_threads,
            device=trial.device,
            state=state,
        )
        limit = None if goal.keeps_last else training.patience_epochs
        patience = Patience(goal, limit).restored(state or {})
        if trial_fit.n_done >= trial_fit.n_rounds or patience.is_over:
            return
        with suppress(_FitStoppedError), threadpool_limits(n_threads):
            self._side.fit(trial_fit, _RoundReporter(trial, trial_fit, patience))

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("such families have no key")


class _RoundReporter:
    """Reports the rounds of a fit to its trial, and ends the fit when patience is over."""

    def __init__(self, trial: TrialContext, trial_fit: TrialFit, patience: Patience) -> None:
        self._trial, self._trial_fit, self._patience = trial, trial_fit, patience

    def __call__(self, fitted: FittedRound) -> None:
        """Report a round. Raises what `TrialContext.report` raises, and _FitStoppedError."""
        if fitted.round < self._trial_fit.n_done:
            return  # reported before the interruption; the fit only repeats it
        family, data = self._trial_fit.family, self._trial_fit.data
        judged = JudgedTargets.from_part(data, data.validation, self._patience.goal.metric)
        scores = ReportScores(judged, lambda: fitted.validation)
        metrics = _metrics(data, fitted, judged)
        self._patience = patience = self._patience.after(metrics)
        self._trial.report(
            fitted.round,
            metrics,
            checkpoint=lambda: {"epoch": fitted.round, **patience.state(), **fitted.get_state()},
            best=lambda: (
                make_model_state(family, data, fitted.get_model()) | scores.threshold_entry()
            ),
            scores=scores,
        )
        if patience.is_over:
            raise _FitStoppedError


def _metrics(data: Dataset, fitted: FittedRound, judged: JudgedTargets) -> dict[str, float]:
    """Return the metrics that networks report, too. A final training may lack validation rows."""
    unit = (data.target_mean, data.target_scale)
    outputs, targets = fitted.train
    predictions = make_predictions(data.task, outputs, targets, *unit, data.loss)
    return {
        "train_loss": predictions.scored(["loss"])["loss"],
        **judged.each_epoch(fitted.validation),
    }


class TableHeavySide(ABC):
    """A `family.HeavySide` whose models scikit-learn fits to a table."""

    def open_estimator(self, setup: EstimatorSetup) -> TableEstimator:
        return TableEstimator(self, setup)

    @abstractmethod
    def fit(self, trial_fit: TrialFit, on_round: OnRound) -> None:
        """Fit, and call `on_round` after each round; an exception of it ends the fit."""

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        # Tensors of a torch file may be views of a single number.
        check_unpacked_size([state], file_bytes)
        return self.model_from_state(tensors_to_arrays(state))

    @abstractmethod
    def model_from_state(self, state: Mapping[str, Any]) -> TrainedModel:
        """Return the model of a checked state without tensors, without loading scikit-learn."""


class FeatureModel(CpuModel, ABC):
    """A `family.TrainedModel` that predicts from one-hot features of a table."""

    classes: ClassScoreLayout

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number D of features that the model takes."""

    @property
    @abstractmethod
    def n_rows_at_once(self) -> int:
        """Number of rows that are encoded together, because all may need too much memory."""

    def check_columns(self, columns: TableColumns) -> None:
        check_content(n_features(columns) == self.n_features, "not its columns", len(columns.all))

    def outputs(self, columns: TableColumns, rows: TableRows) -> Floats:
        at_once = self.n_rows_at_once
        begins = range(0, max(1, len(rows)), at_once)
        parts = [one_hot_features(columns, rows[begin:][:at_once]) for begin in begins]
        return np.concatenate([self.outputs_from_features(part) for part in parts])

    @abstractmethod
    def outputs_from_features(self, x: npt.NDArray[np.float32]) -> Floats:
        """Return outputs (N, n_outputs) for features (N, D)."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """Return the model as plain values for a checkpoint."""


class FeatureHeavySide(TableHeavySide):
    """A `family.HeavySide` that fits one-hot features in one go and reports once."""

    def fit(self, trial_fit: TrialFit, on_round: OnRound) -> None:
        data = trial_fit.data
        x, x_validation = data.view(one_hot_features)
        model = self.fit_features(trial_fit, x)
        on_round(
            FittedRound(
                round=0,
                train=(model.outputs_from_features(x), data.train.y),
                validation=model.outputs_from_features(x_validation),
                get_model=model.plain,
            )
        )

    @abstractmethod
    def fit_features(self, trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> FeatureModel:
        """Return the model that is fitted to the training rows' features (N, D)."""


def finite_array(state: Mapping[str, Any], name: str, dtype: type, n_dimensions: int) -> Any:
    """Return an array of a state. Raises ValueError unless it has finite numbers of `dtype`."""
    array = state[name]
    fits = isinstance(array, np.ndarray) and array.dtype == dtype
    check_content(fits and array.ndim == n_dimensions, f"no {name}", type(array))
    check_content(bool(np.isfinite(array).all()), f"{name} that are no numbers", array.shape)
    return array
