"""What `best.pt` says of a model besides the model itself. No torch: whoever trains writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from automl.config.losses import SQUARED_ERROR
from automl.data.dataset import Dataset
from automl.data.facts import DataFacts
from automl.training.family import Family, name_of

FORMAT = "automl-model-2"
"""Stands in each `best.pt` that `load` can read; a change of its layout is a new number."""
ARRAY_FORMAT = "automl-model-arrays-1"
"""Likewise of a model of data of the user's own."""

THRESHOLD = "threshold"
"""Of two classes: from which probability on a row is of the second; where there is none, the
likelier one is said."""

SHARED = frozenset(
    (
        "format",
        "family",
        "task",
        "preprocessing",
        "classes",
        "target_mean",
        "target_scale",
        "target",
        "target_reading",
        "data",
        "value_loss",
    )
)
"""What `model_state` says beside the model: the same for all models of a table."""


def model_state(
    family: Family, data: Dataset | DataFacts, model: Mapping[str, Any]
) -> dict[str, Any]:
    """What an estimator reports as its best, so that `load` needs nothing else, as plain values.

    `model` is what the heavy side's `read_model` takes.
    """
    own_loss = {} if data.loss == SQUARED_ERROR else {"value_loss": list(astuple(data.loss))}
    if isinstance(data, DataFacts):
        return own_loss | _array_state(name_of(family), data, model)
    reading = data.target_reading
    return {
        **own_loss,
        **({} if reading is None else {"target_reading": reading.plain()}),
        "format": FORMAT,
        "family": name_of(family),
        "task": data.task.value,
        **model,
        "preprocessing": data.columns.plain(),
        "classes": data.classes,
        "target_mean": data.target_mean,
        "target_scale": data.target_scale,
        "target": data.target,
        "data": data.digest,
    }


def _array_state(family: str, facts: DataFacts, model: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": ARRAY_FORMAT,
        "family": family,
        "task": facts.task.value,
        **model,
        "outputs": facts.outputs.value,
        "takes_integers": facts.takes_integers,
        "data": facts.digest,
    }
