"""Adult, Wine Quality and Horse Colic as they come."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.dataset import DatasetPart
from automl.data.load import load_dataset
from automl.data.preprocessing import Preprocessing
from tests.features import features, load_test, width, x_of
from tests.shared_data import shared_table


def config(name: str, target: str, **settings: object) -> DataConfig:
    values = {"kind": DataKind.csv, "path": str(shared_table(name)), "target": target} | settings
    return DataConfig(**values)  # type: ignore[arg-type]


def adult() -> DataConfig:
    return config("adult-train.csv", "income", test=str(shared_table("adult-test.csv")))


def test_adult() -> None:
    data, test = load_dataset(adult()), load_test(adult())
    assert (data.task, data.classes) == (Task.classification, ("<=50K", ">50K"))
    assert (len(data.train), len(data.validation), len(test)) == (26049, 6512, 16281)
    assert width(data) < 110
    for part in (data.train, data.validation):
        assert part.y.mean() == pytest.approx(0.2408, abs=0.0005)


def test_adult_is_learned_from_the_training_part_alone() -> None:
    data = load_dataset(adult())
    ages = next(i for i, c in enumerate(data.columns.all) if c.name == "age")
    assert x_of(data, data.train)[:, ages].mean() == pytest.approx(0, abs=1e-6)
    assert abs(x_of(data, data.validation)[:, ages].mean()) > 1e-6


def test_adult_can_be_learned() -> None:
    """A linear model reaches 14.7 % (a network: 14.1 %): the features say what they should."""
    from sklearn.linear_model import LogisticRegression

    data, test = load_dataset(adult()), load_test(adult())
    model = LogisticRegression(max_iter=200).fit(x_of(data, data.train), data.train.y)
    assert 1 - model.score(x_of(data, test), test.y) < 0.15


def test_the_frame_that_a_user_reads_gives_the_features_of_the_test_part() -> None:
    frame = pd.read_csv(shared_table("adult-test.csv"))
    learned = Preprocessing(load_dataset(adult()).columns)
    np.testing.assert_array_equal(
        features(learned, frame), x_of(load_dataset(adult()), load_test(adult()))
    )


def test_wine() -> None:
    classes = load_dataset(config("winequality-white.csv", "quality"))
    assert classes.classes == (3, 4, 5, 6, 7, 8, 9)
    values = load_dataset(config("winequality-white.csv", "quality", task=Task.regression))
    assert values.task is Task.regression
    assert values.target_mean == pytest.approx(5.88, abs=0.03)
    assert width(values) == 11


def test_horse_colic() -> None:
    settings = config("horse-colic.csv", "outcome")
    data, test = load_dataset(settings), load_test(settings)
    parts: list[DatasetPart] = [data.train, data.validation, test]
    assert sum(map(len, parts)) == 299
    assert "dropped 1 row without a value of outcome (row 133)." in data.notes
    assert data.classes == (1, 2, 3)
    assert width(data) > 27  # the indicators
    assert all(np.isfinite(x_of(data, part)).all() for part in parts)
