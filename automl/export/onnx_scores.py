"""Scores many rows by an ONNX export, in the form in which models are scored.

No code of the export is run. It may come from a registry, where others write, so this package's
reader opens it, not the reader in the export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from automl.config import ExportFormat, Task
from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Threshold
from automl.errors import AutoMLError
from automl.export.formats import EXPORT_FORMATS
from automl.export.package import EXPORT_LAYOUT, SCHEMA_FILE
from automl.export.reader import Model
from automl.record.texts import parse_json

_N_AT_ONCE = 10_000


class NotComparableError(AutoMLError):
    """Raised for an export that cannot be scored on the rows of a data set."""


class ExportScores(NamedTuple):
    """The outputs of an export for rows, and its threshold."""

    outputs: npt.NDArray[np.float64]
    """The outputs (N, classes) or (N, 1) in the form of `family.TrainedModel.outputs`, for the
    classes and the scale of a data set."""
    threshold: Threshold | None
    """What decides the labels; None takes the likeliest class."""


def score_export(folder: Path, rows: Sequence[Mapping[str, Any]], dataset: Dataset) -> ExportScores:
    """Return the outputs of the export in `folder` for rows. Raises NotComparableError."""
    model = _open(folder)
    places = _class_places(model.schema, dataset)
    try:
        parts = [_scores(model, rows[i : i + _N_AT_ONCE]) for i in range(0, len(rows), _N_AT_ONCE)]
    except (KeyError, ValueError) as error:
        raise NotComparableError(f"it does not know these rows ({error})") from error
    scores = np.concatenate(parts).astype(np.float64)
    if dataset.task is Task.classification:
        logs = np.log(np.maximum(scores[:, places], np.finfo(np.float64).tiny))
        return ExportScores(logs, _threshold(model.schema, places))
    return ExportScores(((scores - dataset.target_mean) / dataset.target_scale)[:, None], None)


def _open(folder: Path) -> Model:
    try:
        schema = parse_json((folder / SCHEMA_FILE).read_text("utf-8"))
        known = schema["layout"], schema["format"], schema["file"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotComparableError(f"its {SCHEMA_FILE} cannot be read ({error})") from error
    onnx = ExportFormat.onnx
    if known != (EXPORT_LAYOUT, onnx.value, EXPORT_FORMATS[onnx].file):
        raise NotComparableError(f"it is of another kind ({', '.join(map(str, known))})")
    try:
        return Model(folder)
    except Exception as error:  # ONNX Runtime raises many kinds
        raise NotComparableError(f"it cannot be opened ({error})") from error


def _class_places(schema: Mapping[str, Any], dataset: Dataset) -> list[int]:
    """Return the position in the export of each class of the data set."""
    theirs = list(schema["classes"])
    if schema["task"] != dataset.task.value or sorted(map(repr, theirs)) != sorted(
        map(repr, dataset.classes)
    ):
        raise NotComparableError(f"it answers otherwise ({schema['task']}: {len(theirs)} classes)")
    return [theirs.index(label) for label in dataset.classes]


def _threshold(schema: Mapping[str, Any], places: Sequence[int]) -> Threshold | None:
    """Return the threshold for the classes of the data set, if the export has one."""
    own = schema.get("threshold")
    if isinstance(own, list):
        return tuple(own[place] for place in places)
    assert own is None or isinstance(own, float)
    return own if own is None or places[1] == 1 else 1 - own


def _scores(model: Model, rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
    by_row = [model.arrays(row) for row in rows]
    batch = {name: np.concatenate([arrays[name] for arrays in by_row]) for name in by_row[0]}
    return np.asarray(model.scores(**batch))
