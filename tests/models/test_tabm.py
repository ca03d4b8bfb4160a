"""The batch ensemble: its members alone, their mean, from the training to an export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so

import automl
from automl.config import Config, DataConfig, ExportFormat, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.errors import AutoMLError, ConfigError
from automl.export.package import export_model
from automl.models.families.auto.family import AutoFamily
from automl.models.families.mlp.network import MLPShape
from automl.models.families.tabm.family import TabMFamily
from automl.models.families.tabm.heavy import TabM, TabMNetwork
from automl.models.mean_model import MeanModel
from automl.models.networks.losses import CrossEntropy, MemberwiseLoss, SquaredError
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.running.prepare.preparation import prepare_study
from automl.trial import FinishedOutcome, Params
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, mixed, mixed_frame

PARAMS: dict[str, Any] = {"depth": 2, "width": 8, "lr": 0.01, "batch_size": 64, "dropout": 0.1}


def built(n_outputs: int, hidden: tuple[int, ...] = (6, 5), dropout: float = 0.0) -> TabM:
    network = TabMNetwork(MLPShape(4, hidden, n_outputs), dropout, members=3)
    model = network.build(torch.float64, torch.device("cpu"), seed=1)
    assert isinstance(model, TabM)
    with torch.no_grad():  # as if they had been trained
        generator = torch.Generator().manual_seed(2)
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) / 5)
    return model


def member(model: TabM, k: int, x: torch.Tensor) -> torch.Tensor:
    """What one says, by its own matrices (Wen et al., 2020)."""
    for layer in model.layers:
        weight, scale_in, scale_out, bias = layer.parameters()
        own = weight * torch.outer(scale_out[k], scale_in[k])
        x = torch.relu(F.linear(x, own, bias[k]))
    return x @ model.last[k] + model.last_bias[k, 0]


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("hidden", [(), (6, 5)])
def test_it_is_its_members_and_says_their_mean(n_outputs: int, hidden: tuple[int, ...]) -> None:
    model = built(n_outputs, hidden)
    x = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    each = torch.stack([member(model, k, x) for k in range(3)], 1)
    torch.testing.assert_close(model.train()(x), each)
    out = model.eval()(x)
    assert out.shape == (7, n_outputs)
    if n_outputs == 1:
        torch.testing.assert_close(out, each.mean(1))
    else:
        torch.testing.assert_close(torch.softmax(out, 1), torch.softmax(each, 2).mean(1))
        torch.testing.assert_close(out.exp().sum(1), torch.ones(7, dtype=torch.float64))


def test_each_member_descends_its_own_loss() -> None:
    model = built(3).train()
    x = torch.randn(5, 4, dtype=torch.float64)
    y = torch.tensor([0, 2, 1, 1, 0])
    of_each = [F.cross_entropy(member(model, k, x), y) for k in range(3)]
    loss = MemberwiseLoss(CrossEntropy(3))
    loss.check(model(x), y)
    torch.testing.assert_close(loss.mean(model(x), y), torch.stack(of_each).mean())
    numbers, target = built(1).train(), torch.randn(5, dtype=torch.float64)
    squares = [F.mse_loss(member(numbers, k, x)[:, 0], target) for k in range(3)]
    found = MemberwiseLoss(SquaredError()).mean(numbers(x), target)
    torch.testing.assert_close(found, torch.stack(squares).mean())


def test_members_begin_apart_and_dropout_is_their_own() -> None:
    network = TabMNetwork(MLPShape(4, (200,), 1), 0.5, members=3)
    model = network.build(torch.float32, torch.device("cpu"), seed=1)
    x = torch.ones(1, 4)
    assert isinstance(model, TabM)
    first, *_ = model.layers
    assert set(first.scale_in.flatten().tolist()) == {-1.0, 1.0}  # type: ignore[operator]
    network.seed_draws(model, 5)
    one = model.train()(x)
    network.seed_draws(model, 5)
    assert torch.equal(model(x), one)
    assert not torch.equal(model(x), one)
    assert len(one.flatten().unique()) == 3


def train(folder: Path, dataset: Dataset, params: Params) -> tuple[Listener, Path]:
    plan = make_plan(family=TabMFamily(members=4), training=TrainingConfig(epochs=8))
    listener = Listener()
    open_session(SessionSetup(plan, dataset)).run(make_spec(folder, params), HOST, listener)
    return listener, folder / "trial-00000" / "best.pt"


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "encoding"), [(1, "piecewise_linear"), (3, "plain")])
def test_it_learns_and_is_exported(tmp_path: Path, n_classes: int, encoding: str) -> None:
    dataset = mixed(tmp_path, n_classes)
    listener, path = train(tmp_path, dataset, PARAMS | {"encoding": encoding})
    losses = [metrics["val_loss"] for _, metrics in listener.reports]
    assert min(losses) < 0.8 * losses[0]
    predictor: Predictor = load_table_model(path)
    frame = mixed_frame(n_classes)
    rows = dataset.validation.rows
    assert np.isfinite(predictor.trained_model.outputs(dataset.columns, rows)).all()
    spelt = frame.drop(columns=TARGET).astype(object)
    cells: list[dict[str, Any]]
    cells = spelt.where(spelt.notna(), None).to_dict("records")  # type: ignore[assignment]
    for kind in (ExportFormat.onnx, ExportFormat.torch):
        assert export_model(predictor, cells[:60], tmp_path / kind.value, kind, {}).largest < 1e-5


def test_it_has_folds(tmp_path: Path) -> None:
    dataset = load_dataset(DataConfig(folds=3, n_train=80, n_validation=40))
    plan = replace(make_plan(family=TabMFamily(members=4)), n_models=3)
    listener = Listener()
    spec = make_spec(tmp_path, PARAMS)
    open_session(SessionSetup(plan, dataset)).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome)
    model = load_table_model(tmp_path / "trial-00000" / "best.pt").trained_model
    assert isinstance(model, MeanModel)
    assert model.module is not None
    of_fold = model.members[1].outputs(dataset.columns, dataset.train.rows)
    assert of_fold.shape == (120, 2)
    (linear, *_) = model.module[1].layers
    assert linear.scale_in.shape == (4, 2)


def test_classes_are_weighed(tmp_path: Path) -> None:
    dataset = mixed(tmp_path, 3)
    plain, weighed = (
        train(tmp_path / kind, dataset, PARAMS | {"class_weight": kind})[0].reports
        for kind in ("none", "balanced")
    )
    assert plain != weighed


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "more members": lambda state: state["model"].update(members=10**9),
    "no members": lambda state: state["model"].update(members="4"),
    "another width": lambda state: state["model"].update(hidden_widths=[8, 9]),
    "no last layer": lambda state: state["weights"].pop("last"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strangers_file_is_looked_at(tmp_path: Path, name: str) -> None:
    _, path = train(tmp_path, mixed(tmp_path, 2), PARAMS)
    content = torch.load(path, weights_only=True)
    HOSTILE[name](content["state"])
    torch.save(content, path)
    with pytest.raises(AutoMLError, match=r"best\.pt"):
        automl.load(path)


def test_it_is_one_of_several_families(disc: Dataset) -> None:
    auto, training = AutoFamily(families=["tabm", "linear"]), TrainingConfig()
    params = {"family": "tabm", **{f"tabm_{name}": value for name, value in PARAMS.items()}}
    assert auto.of_trial(params) == (TabMFamily(), PARAMS)
    assert auto.pack_key(params, training, on_host=False) is None
    alone = TabMFamily().work(PARAMS, disc, training)
    assert auto.work(params, disc, training) == alone
    assert "tabm" not in AutoFamily().families
    space = {f"tabm_{name}": value for name, value in PARAMS.items()}
    prepared = prepare_study(Config(model=auto, data=DataConfig(n_train=700), space=space))
    assert prepared.space.has(params)


def test_more_members_want_more(disc: Dataset) -> None:
    few, many = (TabMFamily(members=n) for n in (2, 32))
    of_few, of_many = (f.request(PARAMS, disc, TrainingConfig()) for f in (few, many))
    assert of_few.memory_bytes is not None
    assert of_many.memory_bytes is not None
    assert of_few.memory_bytes < of_many.memory_bytes
    with pytest.raises(ConfigError, match=r"model\.members=0: must be from 1 to 1024"):
        TabMFamily(members=0)
