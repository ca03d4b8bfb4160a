"""Predicts with a network that was trained on arrays of a user (`data=python`).

Models of tables are `predictor.Predictor`, which loads without torch; this module needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Label, NetworkOutputs
from automl.data.scoring.metrics import make_predictions
from automl.errors import AutoMLError
from automl.in_trial.source_parts import holds_whole_numbers, to_tensor
from automl.models.mean_model import class_probabilities
from automl.models.model_file import LoadedModel, check_content
from automl.models.networks.network import NetworkModel

_ROWS_AT_ONCE = 256


class ArrayPredictor(LoadedModel):
    """A trained network that predicts classes or numbers for arrays of rows like its training's.

    For a training loss of your own, and in files of earlier versions, `value_loss` is the squared
    error.
    """

    _model: NetworkModel

    def __init__(self, content: Mapping[str, Any], path: Path, model: object) -> None:
        """Read the model file at `path`. A file of unknown origin may raise any exception."""
        check_content(isinstance(model, NetworkModel), "no network", type(model))
        assert isinstance(model, NetworkModel)
        super().__init__(content, path, model)
        state, names = content["state"], [outputs.value for outputs in NetworkOutputs]
        check_content(state["outputs"] in names, "no kind of outputs", state["outputs"])
        self._output_kind = NetworkOutputs(state["outputs"])
        self._takes_integers = state["takes_integers"] is True
        n_outputs = model.sizes[1]
        has_classes = self._output_kind is NetworkOutputs.SCORES and isinstance(n_outputs, int)
        self.classes: tuple[Label, ...] = tuple(range(model.n_outputs)) if has_classes else ()
        """Class numbers, in the order of `predict_probabilities`; empty if there are none."""

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """Return class numbers (N, …), or numbers in the unit of the targets (N, …).

        With a loss of your own, the outputs of the network are returned unchanged, unless they are
        class scores. `rows` is a tensor or array (N, …) of rows like those of training. Raises
        AutoMLError.
        """
        out = self.outputs(rows)
        return np.asarray(out.argmax(1)) if self._output_kind is NetworkOutputs.SCORES else out

    def predict_probabilities(self, rows: Any) -> npt.NDArray[np.float64]:
        """Return class probabilities (N, C, …). Raises AutoMLError if the network gives none."""
        if self._output_kind is not NetworkOutputs.SCORES:
            raise AutoMLError("This model gives no scores of classes: use predict(rows).")
        return class_probabilities(self.outputs(rows))

    predict_proba = predict_probabilities
    """The name of it in scikit-learn and AutoGluon."""

    def score(self, rows: Any, y: Any) -> dict[str, float]:
        """Return every metric of the task, the same as `evaluate` (`config.metrics.METRICS`).

        `y` (N,) has one class or one number for each row. Raises AutoMLError for other targets.
        """
        out = self.outputs(rows)
        array = to_tensor(y, "y").numpy()
        targets = array.reshape(len(array), -1)
        has_one_each = targets.shape[1] == 1 and self._output_kind is not NetworkOutputs.ANY
        if len(targets) != len(out) or not has_one_each:
            raise AutoMLError(
                f"y is {array.shape}, for {len(out)} rows: score compares one class or one number "
                "for each row. Compare others with what predict(rows) gives."
            )
        single = targets[:, 0]
        is_class = self.task is Task.classification
        y_true = single.astype(np.int64) if is_class else single.astype(np.float64)
        values = out.reshape(len(out), -1)
        return make_predictions(self.task, values, y_true, 0.0, 1.0, self.value_loss).scored()

    def outputs(self, rows: Any) -> npt.NDArray[np.float64]:
        """Return the outputs of the network, as float64. Raises AutoMLError for rows of another
        shape or kind of number."""
        x = to_tensor(rows, "rows")
        n_inputs, _ = self._model.sizes
        shape = (n_inputs,) if isinstance(n_inputs, int) else n_inputs
        if (
            tuple(x.shape[1:]) != shape
            or holds_whole_numbers(x) != self._takes_integers
            or not len(x)
        ):
            kind = "whole numbers" if self._takes_integers else "floating-point numbers"
            raise AutoMLError(
                f"rows are {tuple(x.shape)} of {str(x.dtype).removeprefix('torch.')}; this network "
                f"was trained on (N, {', '.join(map(str, shape))}) of {kind}: give one such row at "
                "least."
            )
        return self._model.outputs_of(x, _ROWS_AT_ONCE)
