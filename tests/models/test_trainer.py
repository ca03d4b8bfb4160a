"""The built-in training: it learns, in each precision, and its draws follow from the seed."""

from __future__ import annotations

import math

import pytest
import torch

from automl.config import Precision, Task
from automl.data.dataset import Dataset
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.tensors import DataOnDevices
from automl.models.networks.trainer import DivergedError, NetworkTrainer, TrainingProblem
from automl.trial import Params
from tests.features import width, x_of


def make_trainer(
    dataset: Dataset,
    params: Params | None = None,
    *,
    precision: Precision = Precision.float32,
    seed: int = 1,
) -> NetworkTrainer:
    problem = TrainingProblem(
        task=dataset.task,
        n_inputs=width(dataset),
        n_outputs=1 if dataset.task is Task.regression else len(dataset.classes),
        target_scale=dataset.target_scale,
        family=MLPFamily(),
        networks=SIDE,
        precision=precision,
    )
    data = DataOnDevices(dataset).tensors("cpu", problem.dtype)
    return NetworkTrainer(problem, MLPFamily().params(params or {}), data, device="cpu", seed=seed)


def train(trainer: NetworkTrainer, n_epochs: int) -> list[dict[str, float]]:
    return [trainer.run_epoch(epoch) for epoch in range(n_epochs)]


@pytest.mark.parametrize("precision", list(Precision))
def test_classes_are_learned(disc: Dataset, precision: Precision) -> None:
    metrics = train(make_trainer(disc, {"lr": 0.01, "batch_size": 32}, precision=precision), 20)
    assert set(metrics[0]) == {"train_loss", "val_loss", "val_error"}
    assert metrics[0]["val_loss"] == pytest.approx(math.log(2), abs=0.25)  # from even odds
    assert metrics[-1]["val_error"] < 0.08
    assert metrics[-1]["train_loss"] < metrics[0]["train_loss"]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_values_are_learned_and_their_error_is_in_their_own_unit(
    plane: Dataset, optimizer: str
) -> None:
    trainer = make_trainer(
        plane, {"lr": 0.01, "batch_size": 20, "optimizer": optimizer, "width": 32}
    )
    metrics = train(trainer, 20)
    assert set(metrics[0]) == {"train_loss", "val_loss", "val_rmse"}
    assert metrics[-1]["val_rmse"] < 0.1 * plane.target_scale
    assert metrics[-1]["val_rmse"] == pytest.approx(
        math.sqrt(metrics[-1]["val_loss"]) * plane.target_scale
    )


def test_the_validation_loss_is_that_of_the_model(disc: Dataset) -> None:
    trainer = make_trainer(disc, {"dropout": 0.3})
    metrics = trainer.run_epoch(0)
    y = torch.tensor(disc.validation.y)
    with torch.no_grad():
        out = trainer.model(torch.tensor(x_of(disc, disc.validation)))
    loss = torch.nn.functional.cross_entropy(out, y).item()
    assert metrics["val_loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["val_error"] == (out.argmax(1) != y).double().mean().item()


def test_the_result_follows_from_params_and_seed_alone(disc: Dataset) -> None:
    before = torch.get_rng_state()
    same = [train(make_trainer(disc, {"dropout": 0.2}, seed=1), 2) for _ in range(2)]
    other = train(make_trainer(disc, {"dropout": 0.2}, seed=2), 2)
    assert same[0] == same[1]
    assert same[0] != other
    assert torch.equal(torch.get_rng_state(), before)  # torch's global generator is not drawn from


def test_every_epoch_has_an_order_and_dropout_of_its_own(disc: Dataset) -> None:
    def first_losses(params: Params) -> list[float]:
        return [make_trainer(disc, params).run_epoch(epoch)["train_loss"] for epoch in (0, 1)]

    by_order, by_dropout = first_losses({}), first_losses({"batch_size": 300, "dropout": 0.2})
    assert by_order[0] != by_order[1]
    assert by_dropout[0] != by_dropout[1]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_state_goes_on_bit_for_bit(disc: Dataset, optimizer: str) -> None:
    params: Params = {"optimizer": optimizer, "dropout": 0.2, "weight_decay": 0.01}
    whole = train(make_trainer(disc, params), 5)
    first = make_trainer(disc, params)
    train(first, 3)
    second = make_trainer(disc, params)
    assert second.load_state(first.state(2)) == 3
    assert [second.run_epoch(epoch) for epoch in (3, 4)] == whole[3:]


def test_a_batch_above_the_training_part_is_the_training_part(disc: Dataset) -> None:
    whole = train(make_trainer(disc, {"batch_size": 300}), 2)
    assert train(make_trainer(disc, {"batch_size": 10_000}), 2) == whole


def test_a_loss_that_is_no_number_ends_the_training_and_names_the_rate(plane: Dataset) -> None:
    trainer = make_trainer(plane, {"lr": 1e8, "optimizer": "sgd"})
    with pytest.raises(DivergedError, match=r"diverged in epoch 0: .*is (nan|inf).*lr=1e\+08"):
        trainer.run_epoch(0)


def test_data_is_put_on_a_device_once(disc: Dataset) -> None:
    data = DataOnDevices(disc)
    assert data.tensors("cpu", torch.float32) is data.tensors("cpu", torch.float32)
    assert data.tensors("cpu", torch.float64).train.x.dtype is torch.float64
