"""Numbers by their bins: `encoding=piecewise_linear`, from the training to an export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl
from automl.config import DataConfig, DataKind, ExportFormat, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.features import N_COLUMN_BINS, bin_edges, n_features, one_hot_features
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.export.package import export_model
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.network import EncodingBins, PiecewiseLinearEncoding
from automl.models.predictor import load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, mixed, mixed_frame

PARAMS = {"encoding": "piecewise_linear", "depth": 1, "width": 8, "lr": 0.03, "batch_size": 32}


def test_each_number_is_how_far_its_bins_are_full() -> None:
    edges = ((0.0, 1.0, 3.0), (), (-1.0, 1.0))
    bins = EncodingBins(4, edges)
    x = torch.tensor([[0.5, 7.0, 0.0, 9.0], [2.0, 7.0, -5.0, 8.0], [99.0, 7.0, 5.0, 8.0]])
    expected = [[0.5, 0.0, 0.5, 9.0], [1.0, 0.5, 0.0, 8.0], [1.0, 1.0, 1.0, 8.0]]
    assert PiecewiseLinearEncoding(edges, torch.float32)(x).tolist() == expected
    assert bins.n_features == 4


def train(folder: Path, dataset: Dataset, params: dict[str, Any] = PARAMS) -> Path:
    plan = make_plan(family=MLPFamily(), training=TrainingConfig(epochs=2))
    listener = Listener()
    open_session(SessionSetup(plan, dataset)).run(make_spec(folder, params), HOST, listener)
    return folder / "trial-00000" / "best.pt"


@pytest.mark.slow
def test_a_model_says_what_it_was_trained_to_and_its_export_does(tmp_path: Path) -> None:
    n_classes = 3
    dataset = mixed(tmp_path, n_classes)
    predictor = load_table_model(train(tmp_path, dataset))
    edges = bin_edges(dataset.columns, dataset.train.rows)
    assert [len(some) for some in edges] == [N_COLUMN_BINS + 1] * 3
    (linear, *_) = predictor.model.layers
    assert linear.in_features == n_features(dataset.columns) + 3 * (N_COLUMN_BINS - 1)
    rows = dataset.validation.rows
    x = torch.from_numpy(one_hot_features(dataset.columns, rows))
    by_hand = predictor.model.layers[1](
        torch.relu(linear(PiecewiseLinearEncoding(edges, torch.float32)(x)))
    )
    found = predictor.trained_model.outputs(dataset.columns, rows)
    np.testing.assert_allclose(found, by_hand.detach().numpy(), atol=1e-6)
    frame = mixed_frame(n_classes).drop(columns=TARGET)
    spelt = frame.astype(object).where(frame.notna(), None)
    cells: list[dict[str, Any]] = spelt.to_dict("records")  # type: ignore[assignment]
    for kind in (ExportFormat.onnx, ExportFormat.torch):
        done = export_model(predictor, cells[:80], tmp_path / kind.value, kind, {})
        assert done.largest < 1e-5


def test_a_table_without_numbers_is_taken_as_it_is(tmp_path: Path) -> None:
    frame = mixed_frame(2)[["kind", TARGET]]
    frame["other"] = ["u", "v"] * 200
    path = tmp_path / "texts.csv"
    frame.to_csv(path, index=False)
    dataset = load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target=TARGET))
    state = torch_checkpoint.load(train(tmp_path, dataset))["state"]
    assert "edges" not in state["model"]


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "falling": lambda plain: plain["edges"][0].reverse(),
    "one edge": lambda plain: plain["edges"].__setitem__(0, [0.5]),
    "no number": lambda plain: plain["edges"][0].__setitem__(3, "x"),
    "not finite": lambda plain: plain["edges"][0].__setitem__(-1, float("inf")),
    "the same as float32": lambda plain: plain["edges"].__setitem__(0, [1.0, 1.0 + 1e-12]),
    "more columns than inputs": lambda plain: plain["edges"].extend([[]] * 99),
    "another number of bins": lambda plain: plain["edges"][0].pop(),
    "none at all": lambda plain: plain.update(edges=[[], [], []]),
    "no list": lambda plain: plain.update(edges=7),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_edges_of_a_stranger_are_looked_at(tmp_path: Path, name: str) -> None:
    path = train(tmp_path, mixed(tmp_path, 2))
    content = torch.load(path, weights_only=True)
    HOSTILE[name](content["state"]["model"])
    torch.save(content, path)
    with pytest.raises(AutoMLError, match=r"best\.pt"):
        automl.load(path)
