"""A registered model as MLflow serves it: an export, opened by the `reader.py` that lies in it.

MLflow copies this file into the model and runs it from there, where neither automl nor torch need
be installed: it needs MLflow itself, numpy, pandas and onnxruntime, and nothing else imports it.
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
N_AT_ONCE = 10_000
"""Rows, whose scores are computed together."""


class ServedModel(PythonModel):
    """Rows as they came from the table in, `prediction` and a probability for each label out."""

    def load_context(self, context: Any) -> None:
        folder = Path(context.artifacts[PACKAGE])
        self.model = reader_of(folder).Model(folder)

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Raises MlflowException for a text where a number was, or a column that is absent."""
        rows = model_input.to_dict("records")
        parts = [self._scores(rows[i : i + N_AT_ONCE]) for i in range(0, len(rows), N_AT_ONCE)]
        classes = self.model.classes
        if not parts:
            parts = [np.empty((0, len(classes)) if classes else 0)]
        scores = np.concatenate(parts)
        if not classes:
            return pd.DataFrame({"prediction": scores})
        threshold = self.model.schema.get("threshold")
        places = scores.argmax(axis=1) if threshold is None else (scores[:, 1] > threshold) * 1
        labels = [classes[place] for place in places]
        by_class = {f"probability_{c}": scores[:, i] for i, c in enumerate(classes)}
        return pd.DataFrame({"prediction": labels, **by_class})

    def _scores(self, rows: list[dict[Any, Any]]) -> Any:
        try:
            taken = [self.model.arrays(row) for row in rows]
        except (KeyError, ValueError) as error:  # in an answer it is the client's, who is told why
            raise MlflowException.invalid_parameter_value(str(error)) from error
        return self.model.scores(**{n: np.concatenate([a[n] for a in taken]) for n in taken[0]})


def reader_of(folder: Path) -> Any:
    """The module in the export itself, so that models of several versions live in one process."""
    spec = spec_from_file_location("reader", folder / "reader.py")
    assert spec is not None, "an export has its reader"
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mlflow.models.set_model(ServedModel())
