"""A table of every kind of column, with holes: of classes, or of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from automl.config import DataConfig, DataKind
from automl.data.dataset import Dataset
from automl.data.load import load_dataset

TARGET = "y"


def mixed_frame(n_classes: int, n_rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """`n_classes` 1: a value. One number in ten is missing, one category is seen in few rows, and
    `when` is in seconds since 1970, of which float32 would keep two minutes."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n_rows), rng.normal(size=n_rows)
    kind = rng.choice(["p", "q", "r"], n_rows, p=[0.5, 0.49, 0.01])
    when = 1.7e9 + rng.integers(0, 100, n_rows)
    score = a + (kind == "q") + 0.02 * (when - 1.7e9) + 0.3 * rng.normal(size=n_rows)
    y = 1000 + 50 * score
    frame = pd.DataFrame({"a": a, "b": b, "kind": kind, "when": when, TARGET: y})
    frame.loc[rng.random(n_rows) < 0.1, "a"] = np.nan
    if n_classes > 1:
        edges = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
        frame[TARGET] = [f"class {place}" for place in np.searchsorted(edges, score)]
    return frame


def mixed(folder: Path, n_classes: int) -> Dataset:
    """The same, split as a sweep does."""
    path = folder / f"mixed-{n_classes}.csv"
    mixed_frame(n_classes).to_csv(path, index=False)
    return load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target=TARGET))


def shops_frame(n_rows: int, n_shops: int, *, is_random: bool = False) -> pd.DataFrame:
    """Rows of shops, each of which has an effect on `y` of its own; or `y` is random."""
    rng = np.random.default_rng(n_rows)
    shop, x = rng.integers(n_shops, size=n_rows), rng.normal(size=(n_rows, 2))
    effect = rng.normal(size=n_shops)[shop] if not is_random else 0.0
    y = effect + 0.3 * x[:, 0] * (not is_random) + 0.3 * rng.normal(size=n_rows)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "shop": shop, TARGET: y}).assign(
        shop=[f"shop {number}" for number in shop]
    )


def by_class(frame: pd.DataFrame, n_classes: int) -> pd.DataFrame:
    """The same with so many classes as the target, equally frequent."""
    places = pd.qcut(frame[TARGET], n_classes, labels=False)
    return frame.assign(**{TARGET: [f"class {place}" for place in places]})
