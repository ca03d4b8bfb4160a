"""From `best.pt` to predictions: `automl.load("best.pt").predict(frame)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Dataset
from automl.errors import AutoMLError
from automl.record.files import BEST, LAST
from automl.training import checkpoint, model_file
from automl.training.family import Builder, Family, Model, families, heavy_side, name_of
from automl.training.mean_model import MeanModel

FORMAT = "automl-model-2"
"""Stands in each `best.pt` that `load` can read; a change of its layout is a new number."""
MEMBERS = "members"
"""What differs among several models that are one by their mean, in a `refit.pt`."""
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

    def __init__(
        self, state: Mapping[str, Any], params: object, file_bytes: int, build: Builder | None
    ) -> None:
        """Raises whatever a state of unknown origin brings about; `file_bytes` is its size."""
        self.task = model_file.task_of(state)
        self._model = _model(state, file_bytes, build)
        self.classes = model_file.classes_of(state, self.task, self._model.n_outputs)
        """The labels, in the order of `predict_probabilities`; empty for regression."""
        self.params = model_file.params_of(params)
        """The hyperparameters it was trained with."""
        self._mean = model_file.number(state, "target_mean")
        self._scale = model_file.number(state, "target_scale")
        # Here, because training processes import this module too: scikit-learn takes 1.6 s.
        from automl.data.preprocessing import Preprocessing

        self._preprocessing = Preprocessing.from_plain(state["preprocessing"])
        self._model.check_columns(self._preprocessing.columns)

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


def _model(state: Mapping[str, Any], file_bytes: int, build: Builder | None) -> Model:
    """The model of a state, or the mean of its members."""
    side = heavy_side(_family(state))
    if MEMBERS not in state:
        return side.read_model(state, file_bytes=file_bytes, build=build)
    members = state[MEMBERS]
    model_file.check(isinstance(members, list | tuple) and len(members) > 0, "no models", members)
    # They are alike, and all of them together no larger than the file.
    each = file_bytes // len(members)
    model_file.check(all(isinstance(one, Mapping) for one in members), "no models", members)
    models = [side.read_model({**state, **one}, file_bytes=each, build=build) for one in members]
    return MeanModel(models, model_file.task_of(state))


def _family(state: Mapping[str, Any]) -> type[Family]:
    """The file names it, among those that there are: nothing is imported by its word."""
    name = _FAMILIES_BEFORE.get(state["format"]) or state["family"]
    known = families()
    what = f"of no family that this version of automl has ({', '.join(known)})"
    model_file.check(isinstance(name, str) and name in known, what, name)
    return known[name]


def load(path: str | PathLike[str], *, build: Builder | None = None) -> Predictor:
    """The model in a `best.pt` of the built-in objective, or in a study's `refit.pt`, on the CPU.

    `build` is for a network of your own: the function that `model.target` named. It is called with
    the arguments in the file. No code runs because the file names it, so a stranger's can be
    opened.

    Raises AutoMLError for a file that is missing, no checkpoint, or of an objective of your own,
    that contradicts itself, or needs `build`.
    """
    content = _content(path)
    state = content.get("state")
    if not isinstance(state, Mapping) or not is_model(state):
        raise AutoMLError(
            f"{path}: automl.load reads the {BEST} of the built-in objective, and this is not "
            f"one ({LAST} holds no model to predict with). For an objective of your own: "
            "torch.load(path, weights_only=True)['state']."
        )
    try:
        return Predictor(state, content["params"], Path(path).stat().st_size, build)
    except model_file.NeedsBuilder as needs:
        raise AutoMLError(_how_to_build(path, needs.target)) from None
    except Exception as error:  # whatever a file of unknown origin, or `build`, brings about
        raise AutoMLError(
            f"{path}: this is not a model that can be used ({type(error).__name__}: "
            f"{model_file.short(error)}). Name the {BEST} of a trial as automl wrote it"
            f"{', and the function that built its network' if build else ''}."
        ) from error


def state_of(path: str | PathLike[str]) -> Any:
    """What an objective of the user's own gave for a `best.pt`; None: it is one that `load` reads.

    Raises AutoMLError as `load` does for a file that is missing or no checkpoint.
    """
    state = _content(path).get("state")
    return None if isinstance(state, Mapping) and is_model(state) else state


def _content(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        return checkpoint.load(Path(path))
    except FileNotFoundError as error:
        raise AutoMLError(f"{path}: there is no such file. Name the {BEST} of a trial.") from error
    except ValueError as error:
        raise AutoMLError(f"{error} Name the {BEST} of a trial.") from error


def is_model(state: Mapping[str, Any]) -> bool:
    """Whether `load` may read it: an estimator of ours gave it."""
    return state.get("format") in (FORMAT, *_FAMILIES_BEFORE)


def _how_to_build(path: str | PathLike[str], target: str) -> str:
    """The call that works; in place of what is no name of a function a word."""
    name = r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}"
    if re.fullmatch(f"{name}:{name}", target, re.ASCII) is None:
        target = "module:function"
    module, _, function = target.partition(":")
    return (
        f"{path}: its network was built by {target}, and no code runs because a file names it. "
        f"If you trust that function, give it: import {module}; "
        f"automl.load({str(path)!r}, build={module}.{function})"
    )
