"""Predicts with foundation models of the libraries TabICL and TabPFN.

A model file has the training rows and names the weights by path and digest. They are read from
there again, and only where the digest is the same; the library of the family is imported, nothing
that a file names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import TableRows, spread_places
from automl.data.scoring.metrics import Floats
from automl.errors import AutoMLError
from automl.models.families.foundation.family import (
    ROWS_AT_ONCE,
    FoundationFamily,
    FoundationParams,
    digest_of,
)
from automl.models.families.table_estimator import (
    ClassScoreLayout,
    FittedRound,
    OnRound,
    TableHeavySide,
    TrialFit,
    finite_array,
)
from automl.models.families.table_family import n_tree_columns
from automl.models.families.tree_arrays import tree_view
from automl.models.family import family_name
from automl.models.model_file import WeightsError, check_content

LEAST_SHARE = 1e-7
"""Least probability of a class: else one wrong row in a million makes the loss infinite."""
WEIGHTS_FOLDER_VARIABLE = "AUTOML_WEIGHTS"
"""Environment variable of a folder that weights are looked for in where they are not at their
path."""


@dataclass(frozen=True)
class WeightsFile:
    """The weights of a model, as its file names them."""

    path: str
    sha256: str

    @classmethod
    def from_path(cls, path: Path) -> WeightsFile:
        return cls(str(path.resolve()), digest_of(path))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> WeightsFile:
        """Read what a model file says. Raises ValueError."""
        texts = [plain["path"], plain["sha256"]]
        check_content(all(isinstance(text, str) for text in texts), "no weights", texts)
        return cls(*texts)

    def find(self) -> Path:
        """Return the file that has these weights. Raises WeightsError."""
        folder = os.environ.get(WEIGHTS_FOLDER_VARIABLE)
        places = [Path(self.path), *([Path(folder, Path(self.path).name)] if folder else [])]
        there = [place for place in places if place.is_file()]
        same = [place for place in there if digest_of(place) == self.sha256]
        if same:
            return same[0]
        why = "has other weights, of another version" if there else "is not there"
        raise WeightsError(
            "it predicts with weights that are no part of it, and "
            f"{there[0] if there else self.path} {why}: put the file of SHA-256 {self.sha256} "
            f"there, or into the folder that the environment variable {WEIGHTS_FOLDER_VARIABLE} "
            "names."
        )


@dataclass(eq=False)
class FoundationModel:
    """A `family.TrainedModel` that predicts from its training rows."""

    library: str
    """Name of the family, which is that of the library."""
    weights: WeightsFile
    params: FoundationParams
    seed: int
    x: npt.NDArray[np.float32]
    """View of the training rows (N, F)."""
    y: Floats
    """Targets of the training rows (N,): places among the classes present, or scaled values."""
    classes: ClassScoreLayout
    device: str = "cpu"
    _predict: Callable[[npt.NDArray[np.float32]], Floats] | None = None

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    @property
    def module(self) -> None:
        return None

    def to(self, device: str) -> None:
        if device != self.device:
            self.device, self._predict = device, None

    def check_columns(self, columns: TableColumns) -> None:
        width = n_tree_columns(columns)
        check_content(width == self.x.shape[1], "not its columns", width)

    def outputs(self, columns: TableColumns, rows: TableRows) -> Floats:
        return self.outputs_of_view(tree_view(columns, rows))

    def outputs_of_view(self, view: npt.NDArray[np.float32]) -> Floats:
        """Return outputs (N, n_outputs) for the view of rows (N, F)."""
        if not len(view):
            return np.zeros((0, self.n_outputs))
        if self._predict is None:
            self._predict = fit_estimator(self)
        predict, begins = self._predict, range(0, len(view), ROWS_AT_ONCE)
        found = np.concatenate([predict(view[begin:][:ROWS_AT_ONCE]) for begin in begins])
        if not len(self.classes.present):
            return self.classes.outputs(found[:, None])
        logs = np.log(found.clip(LEAST_SHARE, 1))
        return self.classes.outputs(logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs)

    def plain(self) -> dict[str, Any]:
        return {
            "weights": {"path": self.weights.path, "sha256": self.weights.sha256},
            "n_estimators": self.params.n_estimators,
            "softmax_temperature": float(self.params.softmax_temperature),
            "seed": self.seed,
            "x": self.x,
            "y": self.y,
            "classes_seen": self.classes.plain(),
        }


def fit_estimator(model: FoundationModel) -> Callable[[npt.NDArray[np.float32]], Floats]:
    """Return what predicts probabilities (N, C), or scaled values (N,), by the library.

    Raises WeightsError for weights that the library cannot use for such targets.
    """
    is_classification = len(model.classes.present) > 0
    path = model.weights.find()
    estimator = _ESTIMATORS[model.library](model, path, is_classification)
    y = model.y.astype(np.int64) if is_classification else model.y
    try:
        estimator.fit(model.x, y)
        predict = estimator.predict_proba if is_classification else estimator.predict
        predict(model.x[:1])
    except torch.OutOfMemoryError:
        raise
    except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        of = "classes" if is_classification else "numbers"
        version = f"{model.library} {metadata.version(model.library)}"
        raise WeightsError(
            f"model.weights={path}: {version} cannot predict {of} with these weights "
            f"({type(error).__name__}: {str(error)[:200]}). Name weights for {of}, of the version "
            "that is installed."
        ) from error
    return lambda view: np.asarray(predict(view), dtype=np.float64)


def _open_tabicl(model: FoundationModel, path: Path, is_classification: bool) -> Any:
    import tabicl

    own: dict[str, Any] = {}
    if is_classification:
        own = {"softmax_temperature": float(model.params.softmax_temperature)}
    kind = tabicl.TabICLClassifier if is_classification else tabicl.TabICLRegressor
    return kind(
        **own,
        n_estimators=model.params.n_estimators,
        batch_size=1,  # a view at a time, so that memory does not grow with their number
        model_path=path,
        allow_auto_download=False,
        device=model.device,
        random_state=model.seed % 2**31,
    )


def _open_tabpfn(model: FoundationModel, path: Path, is_classification: bool) -> Any:
    import tabpfn

    kind = tabpfn.TabPFNClassifier if is_classification else tabpfn.TabPFNRegressor
    return kind(
        n_estimators=model.params.n_estimators,
        softmax_temperature=float(model.params.softmax_temperature),
        model_path=str(path),
        device=model.device,
        ignore_pretraining_limits=True,
        random_state=model.seed % 2**31,
    )


_ESTIMATORS = {"tabicl": _open_tabicl, "tabpfn": _open_tabpfn}


class FoundationHeavySide(TableHeavySide):
    """The `family.HeavySide` of foundation models."""

    def fit(self, trial_fit: TrialFit, on_round: OnRound) -> None:
        """Predict the validation rows from the training rows, and report once."""
        x, x_validation = trial_fit.data.view(tree_view)
        model = _model_of(trial_fit, x)
        sample = spread_places(len(x), _N_SAMPLE)
        train = model.outputs_of_view(x[sample]), trial_fit.data.train.y[sample]
        validation = model.outputs_of_view(x_validation)
        on_round(FittedRound(0, train, validation, model.plain))

    def model_from_state(self, state: Mapping[str, Any]) -> FoundationModel:
        library = str(state["family"])
        check_content(library in _ESTIMATORS, "no foundation model", library)
        params = FoundationParams(
            n_estimators=state["n_estimators"], softmax_temperature=state["softmax_temperature"]
        )
        check_content(type(state["seed"]) is int, "no seed", state["seed"])
        classes = ClassScoreLayout.from_plain(state["classes_seen"])
        x, y = state["x"], finite_array(state, "y", np.float64, 1)
        check_content(isinstance(x, np.ndarray) and x.dtype == np.float32, "no rows", type(x))
        check_content(x.ndim == 2 and len(x) == len(y) > 0, "no rows", x.shape)
        n_present = len(classes.present)
        in_range = n_present == 0 or bool(((y >= 0) & (y < n_present)).all())
        check_content(in_range, "classes", n_present)
        weights = WeightsFile.from_plain(state["weights"])
        weights.find()  # an error now rather than with the first prediction
        return FoundationModel(library, weights, params, state["seed"], x, y, classes)


_N_SAMPLE = 256
"""Number of training rows that `train_loss` is computed from; it says little of such a model."""


def _model_of(trial_fit: TrialFit, x: npt.NDArray[np.float32]) -> FoundationModel:
    data, family, params = trial_fit.data, trial_fit.family, trial_fit.params
    assert isinstance(family, FoundationFamily), "a family of this module"
    assert isinstance(params, FoundationParams), "params of this family"
    present, y = np.empty(0), trial_fit.targets
    if data.task is Task.classification:
        present, y = np.unique(y, return_inverse=True)
        if len(present) < 2:
            raise AutoMLError("the training rows are of one class: no model can tell any apart.")
    return FoundationModel(
        family_name(family),
        WeightsFile.from_path(Path(str(family.weights))),
        params,
        trial_fit.seed,
        x,
        y.astype(np.float64),
        ClassScoreLayout.from_dataset(data, present),
        trial_fit.device,
    )


SIDE = FoundationHeavySide()
