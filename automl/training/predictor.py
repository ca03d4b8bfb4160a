"""From `best.pt` to predictions: `automl.load("best.pt").predict(frame)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.errors import AutoMLError
from automl.training import checkpoint, model_file
from automl.training.models import MLPNetwork, Network
from automl.training.user_module import UserNetwork

FORMAT = "automl-mlp-1"
MODULE_FORMAT = "automl-module-1"
"""One stands in each `best.pt` that `load` can read; a change of its layout is a new number."""

Builder: TypeAlias = Callable[..., torch.nn.Module]
"""(n_inputs, n_outputs, **arguments) → the network."""

_ROWS_AT_ONCE = 8192


class Predictor:
    """A trained network with its table's preprocessing: raw rows in, labels or values out."""

    def __init__(
        self, state: Mapping[str, Any], params: object, file_bytes: int, build: Builder | None
    ) -> None:
        """Raises whatever a state of unknown origin brings about; `file_bytes` is its size."""
        weights = model_file.weights_of(state, file_bytes)
        self._dtype = model_file.dtype_of(weights)
        network = _network(state, weights)
        self.task = model_file.task_of(state)
        self.classes = model_file.classes_of(state, self.task, network.n_outputs)
        """The labels, in the order of `predict_probabilities`; empty for regression."""
        self.params = model_file.params_of(params)
        """The hyperparameters it was trained with."""
        self._mean = model_file.number(state, "target_mean")
        self._scale = model_file.number(state, "target_scale")
        # Here, because training processes import this module too: scikit-learn takes 1.6 s.
        from automl.data.preprocessing import Preprocessing

        self._preprocessing = Preprocessing.from_plain(state["preprocessing"])
        n_features = self._preprocessing.n_features
        model_file.check(n_features == _n_inputs(network), "not its columns", n_features)
        self._model = self._built(network, build)
        self._model.load_state_dict(weights)
        self._model.eval()

    def _built(self, network: MLPNetwork | UserNetwork, build: Builder | None) -> torch.nn.Module:
        cpu = torch.device("cpu")
        if isinstance(network, MLPNetwork):
            return network.build(self._dtype, cpu, seed=0)
        if build is None:
            raise _NeedsBuilder(network)
        return network.build_with(build, self._dtype, cpu, seed=0)

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


class _NeedsBuilder(Exception):
    """Raised for a network that only a function of the user's can build."""

    def __init__(self, network: UserNetwork) -> None:
        super().__init__(network.target)
        self.network = network


def _network(
    state: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> MLPNetwork | UserNetwork:
    if state["format"] == FORMAT:
        return MLPNetwork(model_file.mlp_shape(state["model"], weights))
    return model_file.users_network(state["model"])


def _n_inputs(network: MLPNetwork | UserNetwork) -> int:
    return network.shape.n_inputs if isinstance(network, MLPNetwork) else network.n_inputs


def load(path: str | PathLike[str], *, build: Builder | None = None) -> Predictor:
    """The model in a `best.pt` of the built-in objective, on the CPU.

    `build` is for a network of your own: the function that `model.target` named. It is called with
    the arguments in the file. No code runs because the file names it, so a stranger's can be
    opened.

    Raises AutoMLError for a file that is missing, no checkpoint, or of an objective of your own,
    that contradicts itself, or needs `build`.
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
    try:
        return Predictor(state, content["params"], Path(path).stat().st_size, build)
    except _NeedsBuilder as needs:
        raise AutoMLError(_how_to_build(path, needs.network)) from None
    except Exception as error:  # whatever a file of unknown origin, or `build`, brings about
        raise AutoMLError(
            f"{path}: this is not a model that can be used ({type(error).__name__}: "
            f"{model_file.short(error)}). Name the best.pt of a trial as automl wrote it"
            f"{', and the function that built its network' if build else ''}."
        ) from error


def _how_to_build(path: str | PathLike[str], network: UserNetwork) -> str:
    target = model_file.shown_target(network)
    module, _, function = target.partition(":")
    return (
        f"{path}: its network was built by {target}, and no code runs because a file names it. "
        f"If you trust that function, give it: import {module}; "
        f"automl.load({str(path)!r}, build={module}.{function})"
    )
