"""A network that was trained on data of the user's own: arrays in, classes or numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.data_facts import NetworkOutputs
from automl.data.dataset import Label
from automl.data.scoring.metrics import make_predictions
from automl.errors import AutoMLError
from automl.models import model_file
from automl.models.networks.network import NetworkModel
from automl.objectives.user_data.parts import holds_whole_numbers, to_tensor
from automl.record.study_files import study_around

_ROWS_AT_ONCE = 256


class ArrayPredictor:
    """A trained network: rows like those of its training in, classes or numbers out."""

    def __init__(self, content: Mapping[str, Any], path: Path, model: object) -> None:
        """Of a file's `content`. Raises whatever one of unknown origin brings about."""
        state = content["state"]
        model_file.check_content(isinstance(model, NetworkModel), "no network", type(model))
        assert isinstance(model, NetworkModel)
        self.task: Task = model_file.parse_task(state)
        self.params = model_file.parse_params(content["params"])
        """The hyperparameters it was trained with."""
        self.metrics = model_file.parse_metrics(content.get("metrics", {}))
        """What its trial reported with it, its best report: `val_loss` and the like."""
        self.refitted = model_file.parse_refitted(content)
        """Of a `refit.pt` the `trial` that was trained again, and its `rows`; else None."""
        self.path = path
        """The file that it was loaded from."""
        self.value_loss = model_file.parse_loss(state)
        """What its training descended, where it predicts numbers; of a loss of your own, and in a
        file of an earlier version, squared errors."""
        self._model = model
        names = [outputs.value for outputs in NetworkOutputs]
        model_file.check_content(state["outputs"] in names, "no kind of outputs", state["outputs"])
        self._gives = NetworkOutputs(state["outputs"])
        self._takes_integers = state["takes_integers"] is True
        self.data_digest = model_file.parse_text(state, "data")
        """Of the data that it was trained on, in hex; empty: not known."""
        n_outputs = model.sizes[1]
        of_classes = self._gives is NetworkOutputs.SCORES and isinstance(n_outputs, int)
        self.classes: tuple[Label, ...] = tuple(range(model.n_outputs)) if of_classes else ()
        """Class numbers, in the order of `predict_probabilities`; empty where there are none."""

    def predict(self, rows: Any) -> npt.NDArray[Any]:
        """(N, …) class numbers, or numbers as the targets were; with a loss of your own the
        network's outputs as they are, unless they are scores of classes.

        `rows` is a tensor or array (N, …) of rows like those of training. Raises AutoMLError.
        """
        out = self.outputs(rows)
        return np.asarray(out.argmax(1)) if self._gives is NetworkOutputs.SCORES else out

    def predict_probabilities(self, rows: Any) -> npt.NDArray[np.float64]:
        """(N, C, …) probabilities of the classes. Raises AutoMLError where there are none."""
        if self._gives is not NetworkOutputs.SCORES:
            raise AutoMLError("This model gives no scores of classes: use predict(rows).")
        out = self.outputs(rows)
        shares = np.exp(out - out.max(axis=1, keepdims=True))
        probabilities: npt.NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return probabilities

    def score(self, rows: Any, y: Any) -> dict[str, float]:
        """Every metric of the task, as `evaluate` has them (`config.metrics.METRICS`): of rows with
        one class or one number each, `y` (N,). Raises AutoMLError for others."""
        out = self.outputs(rows)
        given = to_tensor(y, "y").numpy()
        targets = given.reshape(len(given), -1)
        one_each = targets.shape[1] == 1 and self._gives is not NetworkOutputs.ANY
        if len(targets) != len(out) or not one_each:
            raise AutoMLError(
                f"y is {given.shape}, for {len(out)} rows: score compares one class or one number "
                "for each row. Compare others with what predict(rows) gives."
            )
        single = targets[:, 0]
        is_class = self.task is Task.classification
        of = single.astype(np.int64) if is_class else single.astype(np.float32)
        values = out.reshape(len(out), -1)
        return make_predictions(self.task, values, of, 0.0, 1.0, self.value_loss).scored()

    @property
    def model(self) -> Any:
        """The `torch.nn.Module`."""
        return self._model.module

    def to(self, device: str) -> ArrayPredictor:
        """Compute on this device from now on, as torch names it (`cuda:0`); returns itself."""
        self._model.to(device)
        return self

    @property
    def study(self) -> str | None:
        """Name of the study in whose folder its file lies; None: it lies elsewhere."""
        return study_around(self.path)

    def outputs(self, rows: Any) -> npt.NDArray[np.float64]:
        """What the network gives, as float64. Raises AutoMLError for rows of another shape."""
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
