"""Rows that no sweep saw: which they are, and what is refused; baselines beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.data.scoring.evaluation import (
    MAX_LINEAR_ROWS,
    baseline_predictions,
    open_evaluation,
    score_predictions,
    take_training_share,
)
from automl.data.scoring.metrics import make_predictions
from automl.errors import ConfigError
from automl.trial import RowsKind
from tests.data.conftest import WriteTable
from tests.features import load_test


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """300 rows: `y` is `u` where `a` is large, one row in ten is a slip."""
    rng = np.random.default_rng(0)
    a = (rng.permutation(300) - 150) / 100
    y = np.where((a > 0) ^ (rng.random(300) < 0.1), "u", "v")
    path = tmp_path / "table.csv"
    pd.DataFrame({"a": a, "y": y}).to_csv(path, index=False)
    return DataConfig(kind=DataKind.csv, path=str(path), target="y")


def given(config: DataConfig, *lines: str) -> DataConfig:
    path = Path(str(config.path)).with_name("later.csv")
    path.write_text("".join(f"{line}\n" for line in lines))
    return replace(config, test=str(path))


def test_the_studys_own_test_part_is_kept(config: DataConfig) -> None:
    found = open_evaluation(config, None)
    data, test = load_dataset(config), load_test(config)
    assert (found.kind, len(found.part)) == (RowsKind.KEPT, 60)
    np.testing.assert_array_equal(found.part.rows.numbers, test.rows.numbers)
    assert found.dataset.digest == data.digest
    assert found.n_repeats == 0
    assert open_evaluation(replace(config, split_seed=1), None).digest != found.digest


def test_a_table_that_comes_later_changes_no_split(config: DataConfig) -> None:
    asked = given(config, "b,y,a", "9,u,7.5", "9,v,-7.5", "9,,3")
    found = open_evaluation(asked, str(config.test))
    assert (found.kind, found.n_repeats) == (RowsKind.GIVEN, 0)
    np.testing.assert_array_equal(found.part.rows.numbers, [[7.5], [-7.5]])
    assert found.part.y.tolist() == [0, 1]
    own = load_dataset(config)
    assert found.dataset.digest == own.digest
    np.testing.assert_array_equal(found.dataset.train.rows.numbers, own.train.rows.numbers)


def test_a_study_that_kept_no_rows_is_scored_on_those_that_chose(config: DataConfig) -> None:
    own = given(config, "a,y", "1,u", "2,v")
    found = open_evaluation(replace(config, test=None), own.test)
    assert found.kind is RowsKind.VALIDATION
    assert not found.kind.unseen
    data = load_dataset(own)
    assert found.dataset.digest == data.digest
    np.testing.assert_array_equal(found.part.rows.numbers, data.validation.rows.numbers)
    event = score_predictions(
        found.judged(), {0: np.zeros((len(found.part), 2))}, n_resamples=100, seed=0
    )
    assert event.rows == "60 rows of validation, by which trials were chosen"


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (RowsKind.KEPT, {}),
        (RowsKind.GIVEN, {}),
        (RowsKind.VALIDATION, {"test": 0.0}),
        (RowsKind.OUT_OF_FOLD, {"test": 0.0, "folds": 3}),
    ],
)
def test_rows_are_there_as_they_came_in_the_same_order(
    config: DataConfig, kind: RowsKind, changed: dict[str, Any]
) -> None:
    later = kind is RowsKind.GIVEN
    asked = given(config, "b,y,a", "9,u,7.5", "9,v,-7.5", "9,,3") if later else config
    found = open_evaluation(replace(asked, **changed), None)
    assert found.kind is kind
    assert found.frame()["a"].tolist() == found.part.rows.numbers[:, 0].tolist()


def test_rows_of_the_disc_come_as_a_table() -> None:
    found = open_evaluation(DataConfig(), None)
    np.testing.assert_array_equal(found.frame()[["x1", "x2"]], found.part.rows.numbers)


def test_rows_that_trained_are_told(config: DataConfig) -> None:
    lines = Path(str(config.path)).read_text().splitlines()
    found = open_evaluation(given(config, *lines, "77,u"), str(config.test))
    kept = open_evaluation(config, None)
    assert (len(found.part), found.n_repeats) == (301, 300 - len(kept.part))


def test_rows_that_repeat_by_chance_are_no_sign(table: WriteTable) -> None:
    rows = [f"{'pqr'[i % 3]},{i % 4},{'uv'[i % 5 > 2]}" for i in range(600)]
    assert open_evaluation(table("a,b,y", *rows), None).n_repeats == 0


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (("b,y", "1,u"), "data.test={}: The table lacks the columns a: "),
        (("a,b", "1,u"), "data.target=y: must be a column of data.test={}. Its columns: a, b"),
        (("a,y", "1,u", "2,w"), "the target column y holds 'w', which is none of the classes"),
        (("a,y",), "data.test={}: has a header and no rows"),
        (("a,y", "1,", "2,?"), "data.test={}: no row has a value of y"),
        ((), "data.test={}: is empty"),
    ],
    ids=["columns", "target", "classes", "rows", "values", "file"],
)
def test_what_does_not_match_is_refused(
    config: DataConfig, lines: tuple[str, ...], problem: str
) -> None:
    later = given(config, *lines)
    with pytest.raises(ConfigError) as caught:
        open_evaluation(later, None)
    assert problem.format(later.test_path) in str(caught.value)


def test_models_are_compared_on_the_same_samples(config: DataConfig) -> None:
    found = open_evaluation(config, None)
    rng = np.random.default_rng(1)
    good = 3 * (np.eye(2)[found.part.y] + rng.normal(size=(60, 2)))
    event = score_predictions(found.judged(), {3: good, 1: good * 1.001}, n_resamples=300, seed=0)
    assert event.trials == (3, 1)
    assert list(event.scores) == ["trial-00003", "trial-00001", "linear", "majority"]
    own, other = event.scores["trial-00003"]["loss"], event.differences["trial-00001"]["loss"]
    assert other.high - other.low < (own.high - own.low) / 100
    assert event.differences["majority"]["error"].verdict == "worse"
    assert "trial-00003" not in event.differences


# --- baselines ------------------------------------------------------------------------------------


def scores(data: Dataset, name: str) -> dict[str, float]:
    """Of a baseline, on the validation part."""
    part = data.validation
    outputs = baseline_predictions(data, part.rows)[name]
    return make_predictions(
        data.task, outputs, part.y, data.target_mean, data.target_scale
    ).scored()


def test_baselines_of_classes(config: DataConfig) -> None:
    data = load_dataset(config)
    share = np.bincount(data.train.y) / len(data.train)
    largest = share.argmax()
    assert scores(data, "majority")["error"] == np.mean(data.validation.y != largest)
    entropy = -(np.log(share)[data.validation.y]).mean()
    assert scores(data, "majority")["loss"] == pytest.approx(entropy, abs=0.01)
    assert scores(data, "linear")["error"] < 0.2


@pytest.mark.parametrize("folds", [1, 3])
def test_the_majority_is_one_answer_for_all_rows(folds: int, config: DataConfig) -> None:
    found = open_evaluation(replace(config, folds=folds, test=0.0), None)
    outputs = found.judged().baselines["majority"]
    assert (outputs == outputs[0]).all()


def test_baselines_of_values(table: WriteTable) -> None:
    rows = [f"{a},{'pq'[a % 2]},{1000 + 3 * a + 100 * (a % 2)}" for a in range(120)]
    data = load_dataset(table("a,b,y", *rows, task=Task.regression))
    mean = scores(data, "mean")
    assert mean["rmse"] == pytest.approx(
        np.sqrt(np.mean((data.validation.y - data.train.y.mean()) ** 2)), rel=1e-4
    )
    assert scores(data, "linear")["r2"] > 0.99


def test_a_linear_model_of_several_classes() -> None:
    digits = load_dataset(DataConfig(kind=DataKind.digits))
    assert scores(digits, "linear")["error"] < 0.06


def test_classes_that_the_rows_lack_are_improbable_and_not_impossible(table: WriteTable) -> None:
    rows = [f"{i},{'uvw'[min(i % 40, 2)]}" for i in range(200)]
    data = load_dataset(table("a,y", *rows))
    few = replace(data, train=data.train.take(np.flatnonzero(data.train.y != 0)))
    for name in ("linear", "majority"):
        outputs = baseline_predictions(few, few.validation.rows)[name]
        assert outputs.shape == (len(few.validation), 3)
        assert np.isfinite(outputs).all()
        assert (outputs.argmax(axis=1) != 0).all()
    one = replace(data, train=data.train.take(np.flatnonzero(data.train.y == 2)))
    assert (baseline_predictions(one, one.validation.rows)["linear"].argmax(axis=1) == 2).all()


def test_a_linear_model_learns_from_so_many_rows_at_most() -> None:
    data = load_dataset(DataConfig(n_train=MAX_LINEAR_ROWS + 500, n_validation=10))
    outputs = baseline_predictions(data, data.validation.rows)["linear"]
    assert outputs.shape == (10, 2)


# --- parts of the rows ----------------------------------------------------------------------------


def test_a_share_of_the_training_rows_leaves_all_else(config: DataConfig) -> None:
    whole = open_evaluation(config, None)
    half = take_training_share(whole, 0.5, seed=0)
    assert len(half.dataset.train) == len(whole.dataset.train) / 2
    known = {float(number) for number in whole.dataset.train.rows.numbers.ravel()}
    assert {float(number) for number in half.dataset.train.rows.numbers.ravel()} <= known
    assert half.dataset.train.y.mean() == pytest.approx(whole.dataset.train.y.mean(), abs=0.01)
    assert half.dataset.columns == whole.dataset.columns
    assert half.part is whole.part
