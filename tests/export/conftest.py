"""Models with weights that nobody trained, and the rows of a small table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.features import n_features
from automl.data.preprocessing import Preprocessing
from automl.models.model_file import MODEL_FORMAT
from automl.models.predictor import Predictor

ROWS: list[dict[str, Any]] = [
    {
        "age": None if i % 7 == 0 else 20.5 + i,
        "pet": ["cat", "dog", "", "newt"][i % 4],
        "member": i % 3 == 0,
        "seen": 1_700_000_000 + 86_400 * i,
        "level": i % 5,
    }
    for i in range(60)
]


def linear(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.ReLU(), nn.Linear(8, n_outputs))


def predictor_of(
    columns: TableColumns,
    build: Callable[..., nn.Module] = linear,
    *,
    classes: tuple[Any, ...] = ("no", "yes", "perhaps"),
    unit: tuple[float, float] = (0.0, 1.0),
    dtype: torch.dtype = torch.float32,
) -> Predictor:
    """Return a predictor like one from a `best.pt`; without classes it is a regression."""
    n_outputs = max(1, len(classes))
    torch.manual_seed(0)
    network = build(n_features(columns), n_outputs).to(dtype)
    plain = {"target": "a:b", "n_inputs": n_features(columns), "n_outputs": n_outputs}
    task = Task.classification if classes else Task.regression
    state = {
        "format": MODEL_FORMAT,
        "family": "python",
        "task": task.value,
        "model": {**plain, "arguments": {}},
        "weights": network.state_dict(),
        "preprocessing": columns.plain(),
        "classes": classes,
        "target_mean": unit[0],
        "target_scale": unit[1],
    }
    return Predictor({"state": state, "params": {}}, Path("best.pt"), 2**30, build)


@pytest.fixture(scope="session")
def columns() -> TableColumns:
    """Numbers with and without holes, large ones, texts, truths."""
    columns = Preprocessing.fit(pd.DataFrame(ROWS)).columns
    assert len(columns.numbers) == 3
    assert len(columns.categories) == 2
    assert any(column.has_indicator for column in columns.numbers)
    return columns


@pytest.fixture
def classifier(columns: TableColumns) -> Predictor:
    return predictor_of(columns)


@pytest.fixture
def regressor(columns: TableColumns) -> Predictor:
    return predictor_of(columns, classes=(), unit=(1e6, 2e5))


def scores_of(predictor: Predictor, rows: list[dict[str, Any]]) -> np.ndarray:
    """What today's `predict` says of them."""
    frame = pd.DataFrame(rows)
    return predictor.predict_probabilities(frame) if predictor.classes else predictor.predict(frame)
