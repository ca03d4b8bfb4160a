"""The disc and the digits: generated or shipped with a library, no file of the user's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.load import load_dataset
from automl.data.preprocessing import Preprocessing
from automl.errors import ConfigError
from tests.features import features, load_test, width, x_of


def test_disc_has_the_points_and_labels_of_its_formula() -> None:
    data = load_dataset(DataConfig())
    assert x_of(data, data.train).shape == (1000, 2)
    assert x_of(data, data.validation).shape == (500, 2)
    assert (data.task, data.classes) == (Task.classification, (0, 1))
    for part in (data.train, data.validation):
        assert np.abs(x_of(data, part)).max() <= 1
        inside = np.square(x_of(data, part).astype(np.float64)).sum(axis=1) <= 2 / np.pi
        np.testing.assert_array_equal(part.y, inside)
    # Half the area: 500 of 1,000 with a standard deviation of 16.
    assert 420 < data.train.y.sum() < 580


def test_disc_depends_on_its_seed_alone() -> None:
    first, again = load_dataset(DataConfig()), load_dataset(DataConfig())
    other = load_dataset(DataConfig(split_seed=1))
    np.testing.assert_array_equal(x_of(first, first.train), x_of(again, again.train))
    assert first.digest == again.digest
    assert (x_of(first, first.train) != x_of(other, other.train)).any()
    assert first.digest != other.digest


def test_more_training_points_of_the_disc_change_no_validation_point() -> None:
    small, large = load_dataset(DataConfig(n_train=10)), load_dataset(DataConfig(n_train=2000))
    np.testing.assert_array_equal(x_of(small, small.validation), x_of(large, large.validation))
    np.testing.assert_array_equal(x_of(small, small.train), x_of(large, large.train)[:10])
    assert small.digest != large.digest


def test_the_parts_of_the_disc_share_no_point() -> None:
    data, test = load_dataset(DataConfig()), load_test(DataConfig())
    points = np.vstack([x_of(data, data.train), x_of(data, data.validation), x_of(data, test)])
    assert len(np.unique(points, axis=0)) == len(points) == 2000


def test_the_disc_takes_raw_points_at_prediction() -> None:
    data = load_dataset(DataConfig())
    raw = [[0.25, -1.0], [1.0, 0.5]]
    np.testing.assert_array_equal(
        features(Preprocessing(data.columns), raw), np.array(raw, np.float32)
    )


def test_the_disc_loads_neither_pandas_nor_scikit_learn() -> None:
    code = (
        "import sys; from automl.config import DataConfig; from automl.data.load import *;"
        "load_dataset_with_test(DataConfig(), None);"
        "sys.exit(str([m for m in ('pandas', 'sklearn', 'torch') if m in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_digits_are_split_evenly_by_class_and_scaled_to_one() -> None:
    config = DataConfig(kind=DataKind.digits)
    data, test = load_dataset(config), load_test(config)
    assert len(data.train) + len(data.validation) + len(test) == 1797
    assert width(data) == 64
    assert data.classes == tuple(range(10))
    assert (x_of(data, data.train).min(), x_of(data, data.train).max()) == (0, 1)
    for part in (data.train, data.validation, test):
        shares = np.bincount(part.y, minlength=10) / len(part)
        np.testing.assert_allclose(shares, 0.1, atol=0.01)


@pytest.mark.parametrize("kind", [DataKind.disc, DataKind.digits])
@pytest.mark.parametrize("key", ["path", "target", "test"])
def test_a_table_named_without_data_csv_is_refused(kind: DataKind, key: str) -> None:
    config = DataConfig(kind=kind)
    setattr(config, key, "mine.csv")
    with pytest.raises(ConfigError, match=rf"^data\.{key}=mine\.csv: .*add data=csv"):
        load_dataset(config)


def test_regression_on_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.task=regression: data=digits has classes"):
        load_dataset(DataConfig(kind=DataKind.digits, task=Task.regression))


def test_a_negative_split_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.split_seed=-1: must be from 0"):
        DataConfig(split_seed=-1)
