"""Models scored on their study's test rows, in a process that may load what trained them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automl.config import DataConfig, Task
from automl.data.baselines import simplest
from automl.data.dataset import Dataset, Part
from automl.data.frame import Frame
from automl.data.load import load_with_test
from automl.data.scores import Floats, predictions

if TYPE_CHECKING:
    from automl.training.predictor import Predictor


@dataclass(frozen=True)
class TestRows:
    """What is asked. Picklable."""

    paths: Mapping[str, str]
    """Of the models' files, by what they are called."""
    data: DataConfig
    """As the study was searched: it names a test table, or the share that is the test part."""


@dataclass(frozen=True)
class Tested:
    """What is answered."""

    n_rows: int
    scores: Mapping[str, Mapping[str, float]]
    """Of each model."""
    baseline: Mapping[str, float]
    """Of that which says the same of all rows."""


def score(asked: TestRows) -> Tested:
    """Raises AutoMLError for a table or a file that cannot be used."""
    from automl.training.predictor import load_of_table

    found = load_with_test(asked.data, asked.data.test_path)
    data, part = found.dataset, found.test
    models = {name: load_of_table(path) for name, path in asked.paths.items()}
    unit = data.target_mean, data.target_scale, next(iter(models.values())).value_loss
    outputs = {n: outputs_on(of, data, part, found.test_frame) for n, of in models.items()}
    told = {
        name: predictions(data.task, outputs[name], part.y, *unit, model.threshold).scored()
        for name, model in models.items()
    }
    (constant,) = simplest(data, part.rows).values()
    return Tested(len(part), told, predictions(data.task, constant, part.y, *unit).scored())


def outputs_on(model: Predictor, data: Dataset, part: Part, frame: Callable[[], Frame]) -> Floats:
    """What the model of a study with this data gives for a part of it, whose rows as they came
    `frame` gives, in the unit of the study's models.

    Of more rows a refit learned which categories there are, and the target's unit: its codes and
    its outputs are others than theirs.
    """
    if model.refitted is None:
        return model.outputs(part.rows)
    outputs = model.outputs(model.read(frame()))
    if data.task is Task.classification:
        return outputs
    mean, scale = model.unit
    found: Floats = (outputs * scale + mean - data.target_mean) / data.target_scale
    return found
