"""What an ONNX export says of many rows, as models are scored. Nothing of the export is run.

It may come from a registry, where others write, so that it is opened by this package's reader and
not by its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from automl.config import ExportFormat, Task
from automl.data.dataset import Dataset
from automl.errors import AutoMLError
from automl.export.formats import EXPORT_FORMATS
from automl.export.package import EXPORT_LAYOUT, SCHEMA_FILE
from automl.export.reader import Model

_N_AT_ONCE = 10_000


class NotComparableError(AutoMLError):
    """Raised for an export that cannot be scored on these rows."""


class ExportScores(NamedTuple):
    """What an export says of rows."""

    outputs: npt.NDArray[np.float64]
    """(N, classes) or (N, 1), as `family.Model.outputs` gives them for the classes and the scale of
    a data set."""
    threshold: float | None
    """From which the second of two classes is its label; None: the likelier one is."""


def score_export(folder: Path, rows: Sequence[Mapping[str, Any]], dataset: Dataset) -> ExportScores:
    """Raises NotComparableError."""
    model = _open(folder)
    places = _places(model.schema, dataset)
    try:
        said = [_scores(model, rows[i : i + _N_AT_ONCE]) for i in range(0, len(rows), _N_AT_ONCE)]
    except (KeyError, ValueError) as error:
        raise NotComparableError(f"it does not know these rows ({error})") from error
    scores = np.concatenate(said).astype(np.float64)
    if dataset.task is Task.classification:
        logs = np.log(np.maximum(scores[:, places], np.finfo(np.float64).tiny))
        return ExportScores(logs, _threshold(model.schema, places))
    return ExportScores(((scores - dataset.target_mean) / dataset.target_scale)[:, None], None)


def _open(folder: Path) -> Model:
    try:
        schema = json.loads((folder / SCHEMA_FILE).read_text("utf-8"))
        known = schema["layout"], schema["format"], schema["file"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotComparableError(f"its {SCHEMA_FILE} cannot be read ({error})") from error
    onnx = ExportFormat.onnx
    if known != (EXPORT_LAYOUT, onnx.value, EXPORT_FORMATS[onnx].file):
        raise NotComparableError(f"it is of another kind ({', '.join(map(str, known))})")
    try:
        return Model(folder)
    except Exception as error:  # whatever ONNX Runtime raises
        raise NotComparableError(f"it cannot be opened ({error})") from error


def _places(schema: Mapping[str, Any], dataset: Dataset) -> list[int]:
    """Where the export has each class of the data set."""
    theirs = list(schema["classes"])
    if schema["task"] != dataset.task.value or sorted(map(repr, theirs)) != sorted(
        map(repr, dataset.classes)
    ):
        raise NotComparableError(f"it answers otherwise ({schema['task']}: {len(theirs)} classes)")
    return [theirs.index(label) for label in dataset.classes]


def _threshold(schema: Mapping[str, Any], places: Sequence[int]) -> float | None:
    """On the second class of the data set."""
    own: float | None = schema.get("threshold")
    return own if own is None or places[1] == 1 else 1 - own


def _scores(model: Model, rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
    taken = [model.arrays(row) for row in rows]
    together = {name: np.concatenate([arrays[name] for arrays in taken]) for name in taken[0]}
    return np.asarray(model.scores(**together))
