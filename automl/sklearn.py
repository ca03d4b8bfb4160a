"""`automl.sklearn`: the best model of a table as a classifier and a regressor of scikit-learn.

The estimators put `automl.fit` behind scikit-learn's interface, for pipelines, `cross_val_score`
and grid searches. They add no search of their own.
"""

from __future__ import annotations

import functools
import multiprocessing
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from automl.api.fit_call import explain_aloud, fit
from automl.api.python_values import lines_of
from automl.cli.space_overrides import override_text
from automl.data.tables.frames import frame_from_cells
from automl.record.output_file import open_output
from automl.terminal.live_display import shows_live

if TYPE_CHECKING:
    from automl.data.tables.frames import Frame
    from automl.models.predictor import Predictor

__all__ = ["Classifier", "Regressor"]

_TARGET = "target"
_MODEL = "model.pt"


class _SklearnEstimator(BaseEstimator):  # type: ignore[misc]
    """The part that classifier and regressor share. `n_trials`, `timeout` and `overrides` are those
    of `automl.fit`; `timeout_seconds` is the former name of `timeout`. `families` names the
    families that are tried; None: all. `metric` and `direction` are those of `automl.fit`: the name
    of a metric, or a function `my_cost(y_true, y_predicted)`. The study is kept in `folder`; with
    None it is deleted after the fit. Results go to MLflow where `overrides` say so
    (`tracking.uri=auto`). The progress is shown with `verbose`; None: in a terminal or a notebook.
    """

    _task: str

    def __init__(
        self,
        *,
        n_trials: int | None = None,
        timeout: float | str | None = None,
        families: Sequence[str] | None = None,
        metric: str | Callable[[Any, Any], float] | None = None,
        direction: str | None = None,
        overrides: Sequence[str] | Mapping[str, Any] = (),
        folder: str | None = None,
        random_state: Any = 0,
        verbose: bool | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self.n_trials = n_trials
        self.timeout = timeout
        self.timeout_seconds = timeout_seconds
        self.families = families
        self.metric = metric
        self.direction = direction
        self.overrides = overrides
        self.folder = folder
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, frame: Frame, y: Any) -> Self:
        """Search the best model for the numbers `y` (N,), and keep it as fitted."""
        frame = frame.assign(**{self._target: y})
        with tempfile.TemporaryDirectory() as scratch:
            study = fit(
                frame,
                self._target,
                n_trials=self.n_trials,
                timeout=self.timeout,
                timeout_seconds=self.timeout_seconds,
                metric=self._metric(),
                direction=self.direction,
                overrides=[*self._settings(scratch), *lines_of(self.overrides)],
                verbose=self._shows_progress(),
            )
            self.leaderboard_ = study.leaderboard()
            self._load_model(study.save(Path(scratch) / _MODEL).read_bytes())
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803  scikit-learn's name
        """Return (N,) labels as they were in `y`, or values."""
        return self._labels(self._fitted_model().predict(self._known_frame(X)))

    def explain(self, X: Any, y: Any) -> Frame:  # noqa: N803
        """Return how much each column matters for the loss on these rows, as `automl.load`
        describes."""
        model, frame, codes = self._fitted_model(), self._known_frame(X), self._codes(y)
        return explain_aloud(model, frame, codes, timeout=20.0, verbose=self._shows_progress())

    def save(self, path: str | Path) -> Path:
        """Write the model to a file for `automl.load`, `predict` and `export`. In that file,
        classes are their positions in `classes_`."""
        check_is_fitted(self)
        with open_output("path", path) as file:
            file.write(self.model_bytes_)
        return Path(path).expanduser()

    def _labels(self, predicted: Any) -> Any:
        return predicted

    def _metric(self) -> str | Callable[[Any, Any], float] | None:
        return self.metric

    def _codes(self, y: Any) -> Any:
        return y

    def _fitted_model(self) -> Predictor:
        check_is_fitted(self)
        return self._model

    def _known_frame(self, X: Any) -> Frame:  # noqa: N803
        return self._frame(X, reset=False)

    @property
    def _target(self) -> str:
        """A name for the target column that no column of the table has."""
        name = _TARGET
        while name in getattr(self, "feature_names_in_", ()):
            name += "_"
        return name

    def _settings(self, scratch: str) -> list[str]:
        seed = check_random_state(self.random_state).randint(2**31)
        lines = [
            f"study.dir={override_text(self.folder or scratch)}",
            f"study.seed={seed}",
            f"data.task={self._task}",
            "tracking.uri=none",
        ]
        if self.families is not None:
            lines.append(f"model.families={override_text(list(self.families))}")
        return lines

    def _shows_progress(self) -> bool:
        """Return whether the fit shows what a sweep shows: by itself only to somebody who looks,
        and not in the processes and threads of a search."""
        if self.verbose is not None:
            return self.verbose
        is_main = multiprocessing.current_process().name == "MainProcess"
        return shows_live() and is_main and threading.current_thread() is threading.main_thread()

    def _check_training_data(self, X: Any, y: Any) -> tuple[Frame, Any]:  # noqa: N803
        """Return the table, and `y` (N,). Raises ValueError for what scikit-learn refuses."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        frame = self._frame(X, n_least=2)
        check_consistent_length(frame, y)
        return frame, y

    def _frame(self, X: Any, *, reset: bool = True, n_least: int = 1) -> Frame:  # noqa: N803
        """Return the rows as a frame: a table keeps its columns, whatever they hold; an array has
        x0, x1, …"""
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            frame: Frame = X.reset_index(drop=True)
            return frame
        cells = validate_data(
            self,
            X,
            reset=reset,
            dtype=None,
            ensure_all_finite="allow-nan",
            ensure_min_samples=n_least,
        )
        return frame_from_cells(cells)

    def _load_model(self, model_bytes: bytes) -> None:
        from automl.models.predictor import load_table_model

        self.model_bytes_ = model_bytes
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _MODEL
            path.write_bytes(model_bytes)
            self._model = load_table_model(path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "model_bytes_"):
            self._load_model(self.model_bytes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


class Classifier(ClassifierMixin, _SklearnEstimator):  # type: ignore[misc]
    """The best classifier for a table, of any family, by `automl.fit`."""

    _task = "classification"

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fit the best model. Raises AutoMLError for a table that no model can learn from, and
        ValueError for one that scikit-learn refuses."""
        frame, y = self._check_training_data(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class alone, {self.classes_[0]}: a classifier needs rows of two."
            )
        return self._fit(frame, codes)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return (N, C) probabilities, columns as in `classes_`."""
        model = self._fitted_model()
        by_class = np.zeros((len(X), len(self.classes_)))
        probabilities = model.predict_probabilities(self._known_frame(X))
        by_class[:, np.asarray(model.classes, dtype=np.int64)] = probabilities
        return by_class

    def _labels(self, predicted: Any) -> Any:
        return self.classes_[np.asarray(predicted, dtype=np.int64)]

    def _metric(self) -> str | Callable[[Any, Any], float] | None:
        """Return the metric; a function is given labels as they were in `y`, and not the positions
        in `classes_` that the study has."""
        metric, classes = self.metric, self.classes_
        if metric is None or isinstance(metric, str):
            return metric

        @functools.wraps(metric)
        def of_positions(y_true: Any, y_predicted: Any) -> float:
            is_labels = np.issubdtype(y_predicted.dtype, np.integer)
            predicted = classes[y_predicted] if is_labels else y_predicted
            return metric(classes[y_true], predicted)

        return of_positions

    def _codes(self, y: Any) -> Any:
        return np.searchsorted(self.classes_, np.asarray(y))


class Regressor(RegressorMixin, _SklearnEstimator):  # type: ignore[misc]
    """The best regressor for a table, of any family, by `automl.fit`."""

    _task = "regression"

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fit the best model. Raises AutoMLError for a table that no model can learn from, and
        ValueError for one that scikit-learn refuses."""
        frame, y = self._check_training_data(X, y)
        return self._fit(frame, y.astype(np.float64))
