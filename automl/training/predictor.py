"""From `best.pt` to predictions: `automl.load("best.pt").predict(frame)`."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.errors import AutoMLError
from automl.training import checkpoint
from automl.training.models import MLPNetwork, MLPShape, Network
from automl.training.user_module import UserNetwork
from automl.trial import ParamValue

FORMAT = "automl-mlp-1"
MODULE_FORMAT = "automl-module-1"
"""One stands in each `best.pt` that `load` can read; a change of its layout is a new number."""

_ROWS_AT_ONCE = 8192


class Predictor:
    """A trained network with its table's preprocessing: raw rows in, labels or values out."""

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
        weights = state["weights"]
        dtype = next(w.dtype for w in weights.values() if w.is_floating_point())
        self._model = _network(state).build(dtype, torch.device("cpu"), seed=0)
        self._model.load_state_dict(weights)
        self._model.eval()
        self._dtype = dtype

    def predict(self, frame: Any) -> npt.NDArray[Any]:
        """(N,) labels, or values in the target's unit.

        `frame` is a pandas DataFrame with the columns of training (others are ignored), or an array
        (N, D) where the training data had no columns.
        """
        out = self._forward(frame)
        if self.task is Task.regression:
            values: npt.NDArray[np.float64] = out.squeeze(1).double().numpy()
            return np.asarray(values * self._scale + self._mean)
        return np.asarray(np.array(self.classes)[out.argmax(1).numpy()])

    def predict_probabilities(self, frame: Any) -> npt.NDArray[np.float64]:
        """(N, C) probabilities, columns as in `classes`. Raises AutoMLError for regression."""
        if self.task is Task.regression:
            raise AutoMLError("A regression model has no classes: use predict(frame).")
        probabilities: npt.NDArray[np.float64] = self._forward(frame).double().softmax(1).numpy()
        return probabilities

    @torch.no_grad()
    def _forward(self, frame: Any) -> torch.Tensor:
        x = torch.tensor(self._preprocessing.transform(frame)).to(self._dtype)
        return torch.cat([self._model(rows) for rows in torch.split(x, _ROWS_AT_ONCE)])


def predictor_format(network: Network) -> str:
    """What `state["format"]` says of this network."""
    return FORMAT if isinstance(network, MLPNetwork) else MODULE_FORMAT


def _network(state: Mapping[str, Any]) -> Network:
    if state["format"] == FORMAT:
        return MLPNetwork(MLPShape.from_plain(state["model"]))
    return UserNetwork.from_plain(state["model"])


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
    if not isinstance(state, Mapping) or state.get("format") not in (FORMAT, MODULE_FORMAT):
        raise AutoMLError(
            f"{path}: automl.load reads the best.pt of the built-in objective, and this is not "
            "one (last.pt holds no model to predict with). For an objective of your own: "
            "torch.load(path, weights_only=True)['state']."
        )
    return Predictor(state, content["params"])
