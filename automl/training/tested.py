"""A model scored on its study's test rows, in a process that may load what it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from automl.config import DataConfig
from automl.data.baselines import simplest
from automl.data.load import load_with_test
from automl.data.scores import predictions


@dataclass(frozen=True)
class TestRows:
    """What is asked. Picklable."""

    path: str
    """Of the model's file."""
    data: DataConfig
    """As the study was searched: it names a test table, or the share that is the test part."""


@dataclass(frozen=True)
class Tested:
    """What is answered."""

    n_rows: int
    scores: Mapping[str, float]
    baseline: Mapping[str, float]
    """Of that which says the same of all rows."""


def score(asked: TestRows) -> Tested:
    """Raises AutoMLError for a table or a file that cannot be used."""
    from automl.training.predictor import load_of_table

    data, part, _ = load_with_test(asked.data, asked.data.test_path)
    model = load_of_table(asked.path)
    unit = data.target_mean, data.target_scale, model.value_loss
    (constant,) = simplest(data, part.rows).values()
    own = predictions(data.task, model.outputs(part.rows), part.y, *unit, model.threshold)
    baseline = predictions(data.task, constant, part.y, *unit)
    return Tested(len(part), own.scored(), baseline.scored())
