"""The disc: a set of generated points that needs no file.

The file is apart from the tables, because the disc needs numpy alone: pandas is imported only where
a frame is asked for.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from automl.data.dataset import DatasetPart, TableRows
from automl.data.tables.frames import Frame

RADIUS = math.sqrt(2 / math.pi)
"""The circle around the origin has half the area of the square [-1, 1]²."""
DISC_COLUMNS = ("x1", "x2")
DISC_CLASSES = (0, 1)


class PointPurpose(IntEnum):
    """The part that points are drawn for.

    Each part has a random stream of its own, so that more training points change no validation
    point.
    """

    train = 0
    validation = 1
    test = 2


def make_disc(n_points: int, seed: int, purpose: PointPurpose) -> DatasetPart:
    """Return (N, 2) points uniform in [-1, 1]², with label 1 for points inside the circle."""
    points = np.random.default_rng([seed, purpose]).uniform(-1, 1, (n_points, 2))
    inside = np.square(points).sum(axis=1) <= RADIUS**2
    # Networks get float32, so each point is rounded to it here.
    numbers = points.astype(np.float32).astype(np.float64)
    return DatasetPart(
        TableRows(numbers, np.empty((n_points, 0), np.int32)), inside.astype(np.int64)
    )


def disc_frame(points: DatasetPart) -> Frame:
    """Return the points as a table with a column for each coordinate, without labels."""
    import pandas as pd

    return pd.DataFrame(points.rows.numbers, columns=pd.Index(DISC_COLUMNS))
