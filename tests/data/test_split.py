"""Every row is in one part; parts depend on the seed alone and share the classes evenly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.config import DataConfig
from automl.data.folds import MAX_FOLDED_ROWS
from automl.data.split import split_rows
from automl.errors import ConfigError

SIZES = st.integers(4, 200)


@given(n=SIZES, n_classes=st.integers(2, 30), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_each_row_is_in_exactly_one_part(
    n: int, n_classes: int, seed: int, data: st.DataObject
) -> None:
    # Skewed on purpose: many classes of one or two rows.
    share = data.draw(st.floats(0, 1))
    y = np.minimum(np.arange(n) * share, n_classes - 1).astype(np.int64)
    config = DataConfig(split_seed=seed, validation_fraction=data.draw(st.floats(0.01, 0.3)))
    try:
        split = split_rows(y, config)
    except ConfigError:
        return
    together = np.concatenate([split.train, split.validation, split.test])
    assert sorted(together.tolist()) == list(range(n))
    assert min(map(len, (split.train, split.validation, split.test))) >= 1


def test_sizes_are_shares_of_all_rows() -> None:
    config = DataConfig(validation_fraction=0.25, test=0.1)
    split = split_rows(np.zeros(1000, np.float64), config)
    assert (len(split.train), len(split.validation), len(split.test)) == (650, 250, 100)


WIDE_AND_MODELS = [(30, 15), (1000, 5), (10_000, 1)]


@pytest.mark.parametrize(("n_columns", "n_models"), WIDE_AND_MODELS)
def test_the_wider_a_table_the_fewer_models_a_trial_trains(n_columns: int, n_models: int) -> None:
    y, auto = (
        np.zeros(500, np.float64),
        DataConfig(folds="auto", validation_fraction=None, test=0.0),
    )
    by_cost = split_rows(y, replace(auto, rules=4), n_columns=n_columns)
    assert (len(by_cost.folds) or 1) == n_models
    assert len(by_cost.validation) == (100 if n_models == 1 else 0), "a fifth, the rows being few"
    assert len(split_rows(y, auto, n_columns=n_columns).folds) == 15, "as in older studies"
    asked = split_rows(y, replace(auto, folds=5, rules=4), n_columns=n_columns)
    assert len(asked.folds) == 5, "a number that is asked for counts"


def test_a_test_table_leaves_all_rows_to_training_and_validation() -> None:
    split = split_rows(np.zeros(1000, np.float64), DataConfig(test="test.csv"))
    assert (len(split.train), len(split.validation), len(split.test)) == (800, 200, 0)


def test_classes_have_the_same_share_in_each_part() -> None:
    y = np.repeat([0, 1, 2], [700, 250, 50])
    split = split_rows(y, DataConfig())
    assert split.stratified
    for part in (split.train, split.validation, split.test):
        np.testing.assert_allclose(np.bincount(y[part]) / len(part), [0.7, 0.25, 0.05], atol=0.002)


def test_one_rare_class_does_not_stop_the_others_from_being_even() -> None:
    y = np.repeat([0, 1, 2], [699, 300, 1])
    split = split_rows(y, DataConfig())
    assert split.stratified
    for part in (split.train, split.validation, split.test):
        assert np.mean(y[part] == 1) == pytest.approx(0.3, abs=0.005)


def test_more_classes_than_places_are_split_by_chance() -> None:
    split = split_rows(np.arange(20) % 10, DataConfig())
    assert not split.stratified
    assert len(split.test) == 4


def test_the_seed_decides() -> None:
    y = np.arange(100) % 2
    first, again = split_rows(y, DataConfig()), split_rows(y, DataConfig())
    other = split_rows(y, DataConfig(split_seed=1))
    np.testing.assert_array_equal(first.train, again.train)
    assert first.train.tolist() != other.train.tolist()
    assert first.test.tolist() != other.test.tolist()


# --- a part of the training rows ------------------------------------------------------------------


@given(n=st.integers(20, 300), seed=st.integers(0, 2**32 - 1), share=st.floats(0.05, 0.9))
def test_a_part_of_the_training_rows_moves_no_other_row(n: int, seed: int, share: float) -> None:
    y = np.arange(n) % 2
    whole = split_rows(y, DataConfig(split_seed=seed))
    try:
        part = split_rows(y, DataConfig(split_seed=seed, sweep_rows=share))
    except ConfigError as error:
        assert "data.sweep_rows=" in str(error)  # noqa: PT017 - most draws raise none
        return
    np.testing.assert_array_equal(part.validation, whole.validation)
    np.testing.assert_array_equal(part.test, whole.test)
    assert len(part.train) == round(share * len(whole.train))
    assert sorted([*part.train, *part.left]) == whole.train.tolist()
    assert not len(whole.left)


def test_a_part_has_each_class_in_its_share() -> None:
    y = np.repeat([0, 1, 2], [700, 250, 50])
    split = split_rows(y, DataConfig(sweep_rows=100))
    assert split.stratified
    assert np.bincount(y[split.train]).tolist() == [70, 25, 5]


@pytest.mark.parametrize("sweep_rows", [600.0, 60_000, 0.001])
def test_what_is_no_part_is_refused(sweep_rows: float) -> None:
    with pytest.raises(ConfigError, match=r"data.sweep_rows=.* of the 600 training rows"):
        split_rows(np.arange(1000) % 2, DataConfig(sweep_rows=sweep_rows))


@pytest.mark.parametrize("sweep_rows", [0, 1, -0.5, 2.5, float("nan")])
def test_what_is_no_number_of_rows_is_refused(sweep_rows: float) -> None:
    with pytest.raises(ConfigError, match="must be a number of rows"):
        DataConfig(sweep_rows=sweep_rows)


@pytest.mark.parametrize(
    ("folds", "fraction", "n_rows", "n_judged"),
    [
        ("auto", None, MAX_FOLDED_ROWS + 10, 2_001),
        ("auto", 0.2, MAX_FOLDED_ROWS + 10, 4_002),
        (1, None, MAX_FOLDED_ROWS + 10, 4_002),
        (1, None, 100, 20),
    ],
    ids=["many rows", "as it is said", "no folds", "few rows"],
)
def test_of_many_rows_a_tenth_judges(
    folds: object, fraction: float | None, n_rows: int, n_judged: int
) -> None:
    config = DataConfig(folds=folds, validation_fraction=fraction, test=0.0)
    split = split_rows(np.arange(n_rows) % 2, config)
    assert (len(split.validation), len(split.train)) == (n_judged, n_rows - n_judged)


def test_a_hold_out_whose_share_is_not_said_has_a_largest_number_of_rows() -> None:
    y = np.arange(600_000) % 2
    for config, n_judged in (
        (DataConfig(folds="auto", test=0.0, rules=10), 50_000),
        (DataConfig(folds="auto", test=0.0, rules=9), 60_000),
        (DataConfig(folds="auto", test=0.0, rules=10, validation_fraction=0.1), 60_000),
    ):
        assert len(split_rows(y, config).validation) == n_judged
