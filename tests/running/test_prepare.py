"""What is checked and said before anything is written."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from automl.config import Config, DataConfig, TrainingConfig
from automl.errors import ConfigError
from automl.running.parts import worker_limits
from automl.running.prepare import prepare
from automl.search.pruners.halving import Halving
from automl.training.mlp.family import Growth, MLPFamily


def small(space: dict[str, Any]) -> Config:
    """100 training points."""
    return Config(model=MLPFamily(), data=DataConfig(n_train=100), space=space)


def test_a_batch_above_the_training_part_is_said_once() -> None:
    config = Config(
        model=MLPFamily(),
        data=DataConfig(n_train=100),
        space={"batch_size": {"choices": [32, 400, 500]}},
    )
    said = [note for note in prepare(config).notes if "clipped" in note]
    assert said == ["batch_size: clipped to the 100 rows of the training part."]


def test_no_batch_that_fits_is_refused() -> None:
    config = small({"batch_size": 500})
    with pytest.raises(ConfigError, match=r"space.batch_size=500: .* only 100 rows"):
        prepare(config)


def test_batches_that_fit_are_not_spoken_of() -> None:
    config = Config(
        model=MLPFamily(),
        data=DataConfig(n_train=100),
        space={"batch_size": {"choices": [32, 100]}},
    )
    assert not any("clipped" in note for note in prepare(config).notes)


def test_workers_wait_for_verdicts_at_the_rungs_of_the_study() -> None:
    prepared = prepare(
        Config(
            model=MLPFamily(),
            pruner=Halving(),
            training=TrainingConfig(epochs=20),
            space={"batch_size": 32},
        )
    )
    judging = pickle.loads(pickle.dumps(worker_limits(prepared).judging))
    assert list(judging.rungs(-1, 19)) == [2, 6]
    assert list(prepared.pruner.rungs(-1, 19)) == [2, 6]


def test_a_width_with_doubling_layers_is_told_what_to_use() -> None:
    config = Config(model=MLPFamily(growth=Growth.doubling), space={"width": 8})
    with pytest.raises(ConfigError, match="space=doubling"):
        prepare(config)
