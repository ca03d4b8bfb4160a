"""Keys of packs follow from the params alone, and are the same on every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from automl.config import ObjectiveConfig, ObjectiveKind, Precision
from automl.config import TrainingConfig as Training
from automl.models.families.mlp.family import Growth, MLPFamily, padded_width
from automl.models.families.python.family import PythonFamily
from automl.models.family import PackKey, pack_size
from tests.models.conftest import make_plan


def key(params: Mapping[str, Any], *, on_host: bool = True) -> PackKey:
    found = make_plan().pack_key(params, on_host=on_host)
    assert found is not None
    return found


def test_what_may_differ_within_a_pack_does_not_change_its_key() -> None:
    same = {"optimizer": "sgd", "batch_size": 50}
    one = key(same | {"depth": 2, "width": 17, "lr": 0.1, "momentum": 0.5, "dropout": 0.2})
    other = key(
        same | {"depth": 6, "width": 32, "lr": 0.9, "weight_decay": 0.1, "patience_epochs": 3}
    )
    assert one == other
    averaged = same | {"ema_decay": 0.5}
    assert key(averaged) == key(averaged | {"ema_decay": 0.99})


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "adam"},
        {"batch_size": 100},
        {"width": 33},
        {"schedule": "cosine"},
        {"ema_decay": 0.9},
        {"precision": "bfloat16"},
    ],
)
def test_what_must_be_the_same_is_in_the_key(change: dict[str, Any]) -> None:
    params = {"optimizer": "sgd", "batch_size": 50, "width": 32}
    assert key(params) != key(params | change)


def test_precision_and_device_are_in_the_key() -> None:
    double = make_plan(training=Training(precision=Precision.float64))
    assert double.pack_key({}, on_host=True) != key({})
    assert key({}, on_host=False) != key({}, on_host=True)


def test_where_layers_grow_only_one_depth_goes_together() -> None:
    plan = make_plan(family=MLPFamily(growth=Growth.doubling))
    assert plan.pack_key({"depth": 3}, on_host=True) != plan.pack_key({"depth": 4}, on_host=True)


@pytest.mark.parametrize(
    "params",
    [{"depth": 0}, {"lr": -1.0}, {"unknown": 1}, {"accumulate_steps": 2}],
    ids=["linear", "refused", "unknown", "accumulating"],
)
def test_what_cannot_be_packed_trains_alone(params: dict[str, Any]) -> None:
    assert make_plan().pack_key(params, on_host=True) is None


def test_an_objective_of_the_users_trains_alone() -> None:
    users = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "module:train"))
    assert users.pack_key({"lr": 0.1}, on_host=True) is None


def test_users_networks_go_together_where_they_are_built_alike() -> None:
    model = PythonFamily(target="module:build")

    def users_key(**params: Any) -> PackKey | None:
        return make_plan(family=model).pack_key(params, on_host=True)

    one = users_key(lr=0.1, channels=3, kind="a")
    assert one == users_key(kind="a", lr=0.2, channels=3, weight_decay=0.1)
    assert one != users_key(lr=0.1, channels=4, kind="a")
    assert one is not None
    assert pack_size(one, "auto") > 1
    half = make_plan(family=model, training=Training(precision=Precision.bfloat16))
    assert half.pack_key({"lr": 0.1}, on_host=True) is None


def test_widths_are_padded_to_the_next_power_of_two_from_16() -> None:
    assert [padded_width(w) for w in (1, 16, 17, 32, 33, 64, 100)] == [16, 16, 32, 32, 64, 64, 128]


def test_auto_packs_small_widths_on_the_host_and_larger_ones_on_a_gpu() -> None:
    assert pack_size(key({"width": 16}), "auto") > pack_size(key({"width": 64}), "auto") > 1
    assert pack_size(key({"width": 256}), "auto") == 1
    assert pack_size(key({"width": 256}, on_host=False), "auto") > 1
    assert pack_size(key({"width": 4096}, on_host=False), "auto") == 1


def test_the_setting_overrules_the_table() -> None:
    assert pack_size(key({"width": 16}), "none") == 1
    assert pack_size(key({"width": 512}), 5) == 5
