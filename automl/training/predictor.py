"""From `best.pt` to predictions: `automl.load("best.pt").predict(frame)`."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Dataset
from automl.errors import AutoMLError
from automl.training import checkpoint
from automl.training.family import Family, families, heavy_side, name_of
from automl.trial import ParamValue

FORMAT = "automl-model-2"
"""Stands in each `best.pt` that `load` can read; a change of its layout is a new number."""
_FAMILIES_BEFORE = {"automl-mlp-1": "mlp", "automl-module-1": "python"}
"""Files written before they said their family, by their format."""


def model_state(family: Family, dataset: Dataset, model: Mapping[str, Any]) -> dict[str, Any]:
    """What an estimator reports as its best, so that `load` needs nothing else, as plain values.

    `model` is what the heavy side's `read_model` takes.
    """
    return {
        "format": FORMAT,
        "family": name_of(family),
        "task": dataset.task.value,
        **model,
        "preprocessing": dataset.columns.plain(),
        "classes": dataset.classes,
        "target_mean": dataset.target_mean,
        "target_scale": dataset.target_scale,
    }


class Predictor:
    """A trained model with its table's preprocessing: raw rows in, labels or values out."""

    def __init__(self, state: Mapping[str, Any], params: Mapping[str, ParamValue]) -> None:
        self.task = Task(state["task"])
        self.classes: tuple[ParamValue, ...] = tuple(state["classes"])
        """The labels, in the order of `predict_probabilities`; empty for regression."""
        self.params = dict(params)
        """The hyperparameters it was trained with."""
        self._mean, self._scale = state["target_mean"], state["target_scale"]
        # Here, because training processes import this module too: scikit-learn takes 1.6 s.
        from automl.data.preprocessing import Preprocessing

        self._preprocessing = Preprocessing.from_plain(state["preprocessing"])
        self._model = heavy_side(_family(state)).read_model(state)

    def predict(self, frame: Any) -> npt.NDArray[Any]:
        """(N,) labels, or values in the target's unit.

        `frame` is a pandas DataFrame with the columns of training (others are ignored), or an array
        (N, D) where the training data had no columns.
        """
        out = self._outputs(frame)
        if self.task is Task.regression:
            return np.asarray(out[:, 0] * self._scale + self._mean)
        return np.asarray(np.array(self.classes)[out.argmax(1)])

    def predict_probabilities(self, frame: Any) -> npt.NDArray[np.float64]:
        """(N, C) probabilities, columns as in `classes`. Raises AutoMLError for regression."""
        if self.task is Task.regression:
            raise AutoMLError("A regression model has no classes: use predict(frame).")
        out = self._outputs(frame)
        shares = np.exp(out - out.max(axis=1, keepdims=True, initial=-np.inf))
        probabilities: npt.NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return probabilities

    def _outputs(self, frame: Any) -> npt.NDArray[np.float64]:
        rows = self._preprocessing.read(frame)
        return self._model.outputs(self._preprocessing.columns, rows)


def _family(state: Mapping[str, Any]) -> type[Family]:
    name = _FAMILIES_BEFORE.get(state["format"]) or state["family"]
    known = families()
    if name not in known:
        raise AutoMLError(
            f"This model is of the family {name}, which this version of automl does not have; it "
            f"has {', '.join(known)}."
        )
    return known[name]


def load(path: str | PathLike[str]) -> Predictor:
    """The model in a `best.pt` of the built-in objective, on the CPU.

    A network of your own is built by its function, which must be importable here.

    Raises AutoMLError for a file that is missing, no checkpoint, or of an objective of your own.
    """
    try:
        content = checkpoint.load(Path(path))
    except FileNotFoundError as error:
        raise AutoMLError(f"{path}: there is no such file. Name the best.pt of a trial.") from error
    except ValueError as error:
        raise AutoMLError(f"{error} Name the best.pt of a trial.") from error
    state = content.get("state")
    if not isinstance(state, Mapping) or state.get("format") not in (FORMAT, *_FAMILIES_BEFORE):
        raise AutoMLError(
            f"{path}: automl.load reads the best.pt of the built-in objective, and this is not "
            "one (last.pt holds no model to predict with). For an objective of your own: "
            "torch.load(path, weights_only=True)['state']."
        )
    return Predictor(state, content["params"])
