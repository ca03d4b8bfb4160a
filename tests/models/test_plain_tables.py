"""No family fails on a table that others fit: every entry of every portfolio, on odd tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from automl.config import DataConfig, DataKind, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.models.families.kernel.length_scales import cholesky_factor
from automl.models.family import Family, load_families
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import FinishedOutcome, Params
from tests.models.conftest import HOST, Listener, make_plan, make_spec

FAMILIES: dict[str, Family] = {
    name: kind() for name, kind in load_families().items() if name not in ("auto", "python")
}
ENTRIES = [
    pytest.param(name, params, id=f"{name}-{number}")
    for name, family in FAMILIES.items()
    for number, params in enumerate(family.portfolio())
]
SMALL = [(60, 0), (150, 1)]
LARGER = [(60 + 40 * seed**2, seed) for seed in range(2, 11)] + [(5000, 11)]


def odd_frame(n_rows: int, seed: int, *, of_classes: bool) -> pd.DataFrame:
    """Return a table with a constant column, collinear columns, one value far out, and rows that
    are there several times."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n_rows), rng.normal(size=n_rows)
    frame = pd.DataFrame({"a": a, "b": b, "constant": 3.0, "twice": 2 * a, "sum": a + 1e-9 * b})
    frame["whole"] = rng.integers(0, 3, n_rows)
    frame["far"] = rng.normal(size=n_rows)
    frame.loc[seed, "far"] = 10.0 ** (3 + seed)
    frame["y"] = a * b + 0.01 * rng.normal(size=n_rows) * (seed % 2)
    if of_classes:
        frame["y"] = [f"class {place}" for place in np.digitize(frame["y"], [-0.5, 0.5])]
    return frame.iloc[rng.integers(0, n_rows, n_rows) // (1 + seed % 3)].reset_index(drop=True)


def dataset(folder: Path, n_rows: int, seed: int, *, of_classes: bool) -> Dataset:
    path = folder / "odd.csv"
    odd_frame(n_rows, seed, of_classes=of_classes).to_csv(path, index=False)
    return load_dataset(DataConfig(kind=DataKind.csv, path=str(path), target="y"))


def check_it_fits(name: str, params: Params, data: Dataset, folder: Path) -> None:
    family = FAMILIES[name]
    plan = make_plan(family=family, training=TrainingConfig(epochs=1))
    listener, spec = Listener(), make_spec(folder, params)
    open_session(SessionSetup(plan, data)).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert np.isfinite(listener.outcome.value)


@pytest.mark.parametrize("of_classes", [False, True], ids=["values", "classes"])
@pytest.mark.parametrize(("n_rows", "seed"), SMALL)
@pytest.mark.parametrize(("name", "params"), ENTRIES)
def test_every_portfolio_entry_fits_an_odd_table(
    name: str, params: Params, n_rows: int, seed: int, of_classes: bool, tmp_path: Path
) -> None:
    check_it_fits(name, params, dataset(tmp_path, n_rows, seed, of_classes=of_classes), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("of_classes", [False, True], ids=["values", "classes"])
@pytest.mark.parametrize(("n_rows", "seed"), LARGER)
@pytest.mark.parametrize(("name", "params"), ENTRIES)
def test_every_portfolio_entry_fits_a_larger_odd_table(
    name: str, params: Params, n_rows: int, seed: int, of_classes: bool, tmp_path: Path
) -> None:
    check_it_fits(name, params, dataset(tmp_path, n_rows, seed, of_classes=of_classes), tmp_path)


def test_an_indefinite_kernel_matrix_is_regularised() -> None:
    """Rounding leaves the matrix of rows that are there many times with values below 0."""
    row = np.random.default_rng(0).normal(size=(40, 2)) * 1e4
    matrix = np.repeat(np.repeat(row @ row.T, 3, axis=0), 3, axis=1)
    with threadpool_limits(1):
        factor = cholesky_factor(matrix)
    assert np.linalg.eigvalsh(matrix).min() < 0
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-6 * matrix.max())
