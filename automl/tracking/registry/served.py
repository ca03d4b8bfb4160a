"""Serves a registered model in MLflow: opens the export with the `reader.py` that lies in it.

MLflow copies this file into the model and runs it from there, where neither automl nor torch need
be installed. It needs MLflow itself, numpy, pandas and onnxruntime; no other module imports it.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel

PACKAGE = "package"
"""The name of the export among the model's artifacts."""
MAX_ROWS_AT_ONCE = 10_000
"""Number of rows whose scores are computed together, at most."""


class ServedModel(PythonModel):
    """A model that takes rows as in the table, and returns predictions and probabilities.

    The frame that it returns has the column `prediction`, and `probability_LABEL` for each label.
    """

    def load_context(self, context: Any) -> None:
        folder = Path(context.artifacts[PACKAGE])
        self.model = load_reader(folder).Model(folder)

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the predictions. Raise MlflowException for rows that do not fit."""
        rows = model_input.to_dict("records")
        parts = [
            self._scores(rows[i : i + MAX_ROWS_AT_ONCE])
            for i in range(0, len(rows), MAX_ROWS_AT_ONCE)
        ]
        classes = self.model.classes
        if not parts:
            parts = [np.empty((0, len(classes)) if classes else 0)]
        scores = np.concatenate(parts)
        if not classes:
            return pd.DataFrame({"prediction": scores})
        threshold = self.model.schema.get("threshold")
        judged = scores
        if isinstance(threshold, list):  # of more than two classes, one for each
            judged, threshold = scores / np.array(threshold), None
        places = judged.argmax(axis=1) if threshold is None else (scores[:, 1] > threshold) * 1
        labels = [classes[place] for place in places]
        by_class = {f"probability_{c}": scores[:, i] for i, c in enumerate(classes)}
        return pd.DataFrame({"prediction": labels, **by_class})

    def _scores(self, rows: list[dict[Any, Any]]) -> Any:
        try:
            arrays = [self.model.arrays(row) for row in rows]
        except (KeyError, ValueError) as error:  # the client gets the reason in the answer
            raise MlflowException.invalid_parameter_value(str(error)) from error
        return self.model.scores(**{n: np.concatenate([a[n] for a in arrays]) for n in arrays[0]})


def load_reader(folder: Path) -> Any:
    """Return the reader of this export, so that models of several versions live in one process."""
    spec = spec_from_file_location("reader", folder / "reader.py")
    assert spec is not None, "an export has its reader"
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mlflow.models.set_model(ServedModel())
