"""What is said of a result that a sweep ends with, beside what says the same of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config import DataConfig
from automl.data.load import load_dataset
from automl.running.features.scores import SweepResult, baseline_scores, no_skill_warning
from automl.trial import Direction


@pytest.mark.parametrize(
    ("metric", "towards", "value", "is_doubted"),
    [
        ("val_loss", Direction.minimize, 0.986, True),
        ("val_loss", Direction.minimize, 0.3, False),
        ("val_accuracy", Direction.maximize, 0.2, True),
        ("val_accuracy", Direction.maximize, 0.99, False),
        ("val_of_somebody", Direction.minimize, 0.986, False),
    ],
)
def test_what_is_no_better_than_the_majority_is_said_to_be(
    metric: str, towards: Direction, value: float, *, is_doubted: bool
) -> None:
    dataset, name = load_dataset(DataConfig()), metric.removeprefix("val_")
    result = SweepResult("ensemble", Path("e.pt"), {name: value})
    line = no_skill_warning(result, dataset, baseline_scores(dataset), metric, towards)
    assert line.startswith(f"ensemble is no better than majority ({name}") == is_doubted
    assert bool(line) == is_doubted
