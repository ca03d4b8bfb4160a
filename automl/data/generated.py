"""The disc: a set of points that needs no file. numpy only, but where a frame is asked for."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from automl.data.dataset import DatasetPart, TableRows
from automl.data.tables.frames import Frame

RADIUS = math.sqrt(2 / math.pi)
"""The circle around the origin has half the area of the square [-1, 1]²."""
NAMES = ("x1", "x2")
CLASSES = (0, 1)


class PointPurpose(IntEnum):
    """Each part has a stream of its own: more training points change no validation point."""

    train = 0
    validation = 1
    test = 2


def disc(n_points: int, seed: int, purpose: PointPurpose) -> DatasetPart:
    """(N, 2) points uniform in [-1, 1]², and label 1 for those inside the circle."""
    points = np.random.default_rng([seed, purpose]).uniform(-1, 1, (n_points, 2))
    inside = np.square(points).sum(axis=1) <= RADIUS**2
    # As a float32 each, which is what a network is given.
    numbers = points.astype(np.float32).astype(np.float64)
    return DatasetPart(
        TableRows(numbers, np.empty((n_points, 0), np.int32)), inside.astype(np.int64)
    )


def frame_of_points(points: DatasetPart) -> Frame:
    """As a table would hold them."""
    import pandas as pd

    return pd.DataFrame(points.rows.numbers, columns=pd.Index(NAMES))
