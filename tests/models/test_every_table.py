"""No family fails on a table that others fit: each entry of each portfolio, on awkward tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from threadpoolctl import threadpool_limits

from automl.config import DataConfig, DataKind, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.models.families.kernel.family import MAX_ROWS, KernelFamily
from automl.models.families.tree_arrays import tree_view
from automl.models.families.trees.family import TreesFamily
from automl.models.family import load_families
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import FinishedOutcome
from tests.models.conftest import HOST, Listener, make_plan, make_spec

NAMES = [
    name
    for name, family in load_families().items()
    if name not in ("auto", "python") and not family().missing_extras
]
TARGET = "y"
Features = Callable[[np.random.Generator, int], pd.DataFrame]
Target = Callable[[np.random.Generator, pd.DataFrame], "pd.Series[Any]"]


def _plain(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    return pd.DataFrame(rng.normal(size=(n_rows, 4)), columns=list("abcd"))


def _duplicated(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    """Each row stands in the table five times."""
    few = _plain(rng, max(1, n_rows // 5))
    return few.iloc[np.arange(n_rows) % len(few)].reset_index(drop=True)


def _collinear(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    """Columns that follow from others, or are nearly constant."""
    frame = _plain(rng, n_rows)
    frame["copy"], frame["sum"] = frame["a"], frame["a"] + 2 * frame["b"]
    frame["constant"] = 3.0
    frame["nearly"] = 1.0 + 1e-13 * (np.arange(n_rows) == 0)
    return frame


def _far_out(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    """A cell is far from all others of its column."""
    frame = _plain(rng, n_rows)
    frame.loc[n_rows // 2, "a"] = 1e12
    frame.loc[0, "b"] = -1e300
    return frame


def _whole_numbers(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    """Few different rows, of which those that are the same have different targets."""
    return pd.DataFrame(rng.integers(0, 3, size=(n_rows, 2)), columns=["a", "b"])


def _with_holes(rng: np.random.Generator, n_rows: int) -> pd.DataFrame:
    """Numbers and categories, nine in ten missing, and a category of one row."""
    frame = _plain(rng, n_rows)
    frame = frame.mask(rng.random(frame.shape) < 0.9)
    frame["kind"] = np.where(np.arange(n_rows) == 3, "once", "often")
    return frame


FEATURES = (_plain, _duplicated, _collinear, _far_out, _whole_numbers, _with_holes)


def _separable(_rng: np.random.Generator, frame: pd.DataFrame) -> pd.Series[Any]:
    """Classes that one column decides, without noise."""
    return pd.Series(
        np.where(frame.iloc[:, 0].fillna(0.0).rank(method="first") > len(frame) / 2, "yes", "no")
    )


def _rare(rng: np.random.Generator, frame: pd.DataFrame) -> pd.Series[Any]:
    """Six classes by chance, of which one has three rows."""
    classes = rng.integers(0, 5, len(frame))
    classes[:3] = 5
    return pd.Series(classes).map("class {}".format)


def _exact(_rng: np.random.Generator, frame: pd.DataFrame) -> pd.Series[Any]:
    """A value without noise."""
    return frame.iloc[:, 0].fillna(0.0).rank() / 7 + frame.iloc[:, 1].fillna(0.0).rank()


def _heavy_tails(rng: np.random.Generator, frame: pd.DataFrame) -> pd.Series[Any]:
    """A value of which few rows say nearly all."""
    return pd.Series(rng.standard_cauchy(len(frame)) ** 3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Give tests a trial's one thread: threads that wait for each other slow a busy machine."""
    with threadpool_limits(1):
        yield


def table(folder: Path, features: Features, target: Target, n_rows: int) -> Dataset:
    rng = np.random.default_rng(n_rows)
    frame = features(rng, n_rows)
    frame[TARGET] = target(rng, frame)
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    return load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target=TARGET))


def failures(folder: Path, name: str, data: Dataset) -> list[str]:
    """Causes of the failed trials of a family's portfolio."""
    family = load_families()[name]()
    plan = make_plan(family=family, training=TrainingConfig(epochs=1))
    session = open_session(SessionSetup(plan, data))
    outcomes = []
    for number, params in enumerate(family.portfolio(data)):
        listener = Listener()
        session.run(make_spec(folder / name, params, number), HOST, listener)
        outcomes.append(listener.outcome)
    return [str(outcome) for outcome in outcomes if not isinstance(outcome, FinishedOutcome)]


def test_the_first_forests_are_as_good_as_the_librarys_without_noise(tmp_path: Path) -> None:
    """The table has few columns and little noise, so each row may need a leaf of its own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 5))
    frame = pd.DataFrame(x, columns=list("abcde"))
    frame[TARGET] = np.where(np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] > 0, "in", "out")
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    data = load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target=TARGET))
    plan = make_plan(family=TreesFamily(), training=TrainingConfig(epochs=20))
    session = open_session(SessionSetup(plan, data))
    losses = []
    for number, params in enumerate(TreesFamily().portfolio()):
        listener = Listener()
        session.run(make_spec(tmp_path, params, number), HOST, listener)
        losses.append(listener.reports[-1][1]["val_loss"])
    x_train, x_validation = data.view(tree_view)
    library = ExtraTreesClassifier(max_features=None, random_state=0).fit(x_train, data.train.y)
    shares = library.predict_proba(x_validation).clip(1e-7)
    own = -np.log(shares[np.arange(len(shares)), data.validation.y]).mean()
    assert min(losses) < 1.1 * own


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("target", [_separable, _exact])
def test_every_family_fits_a_small_table(
    features: Features, target: Target, tmp_path: Path
) -> None:
    data = table(tmp_path, features, target, 60)
    assert [one for name in NAMES for one in failures(tmp_path, name, data)] == []


CLASSES, NUMBERS = (_separable, _rare), (_exact, _heavy_tails)
PAIRS = [
    (features, targets[(place + number) % 2])
    for place, features in enumerate(FEATURES)
    for number, targets in enumerate((CLASSES, NUMBERS))
]
"""Each kind of features with classes and with numbers, and each kind of target three times."""


@pytest.mark.slow
@pytest.mark.parametrize(("features", "target"), PAIRS)
def test_every_family_fits_a_larger_table(
    features: Features, target: Target, tmp_path: Path
) -> None:
    """The table has more rows than a kernel has landmarks, or learns its lengths from."""
    data = table(tmp_path, features, target, 2000)
    assert len(data.train) > KernelFamily.landmarks > MAX_ROWS
    assert [one for name in NAMES for one in failures(tmp_path, name, data)] == []
