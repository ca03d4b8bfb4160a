"""The features of a data set as a network is given them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import DataConfig
from automl.data.dataset import Dataset, DatasetPart
from automl.data.features import n_features, one_hot_features
from automl.data.load import load_dataset_with_test
from automl.data.preprocessing import Preprocessing


def x_of(data: Dataset, part: DatasetPart) -> npt.NDArray[np.float32]:
    """(N, D) of one part."""
    return one_hot_features(data.columns, part.rows)


def width(data: Dataset) -> int:
    """D."""
    return n_features(data.columns)


def features(preprocessing: Preprocessing, frame: Any) -> npt.NDArray[np.float32]:
    """(N, D) finite features of raw rows."""
    return one_hot_features(preprocessing.columns, preprocessing.read(frame))


def load_test(config: DataConfig) -> DatasetPart:
    """The part that no sweep by these settings sees."""
    return load_dataset_with_test(config, config.test).test
