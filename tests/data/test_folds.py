"""Folds: every row in its place, classes even, groups whole, order kept; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.config import DataConfig, DataKind
from automl.data.dataset import Dataset, RefitRows
from automl.data.folds import (
    FEW_ROWS,
    MAX_FOLDED_ROWS,
    TableSize,
    find_untrained_classes,
    folds_at_random,
    folds_in_order,
    folds_of_groups,
)
from automl.data.load import load_dataset, load_dataset_with_test
from automl.errors import ConfigError

SEEDS = st.integers(0, 2**32 - 1)


@given(n=st.integers(4, 200), n_folds=st.integers(2, 6), n_classes=st.integers(1, 9), seed=SEEDS)
def test_each_row_is_judged_once_and_classes_are_even(
    n: int, n_folds: int, n_classes: int, seed: int
) -> None:
    classes = np.random.default_rng(seed).integers(0, n_classes, n) ** 2
    try:
        folds = folds_at_random(classes, n_folds, seed)
    except ConfigError:
        assert n < n_folds or n - -(-n // n_folds) < 2
        return
    together = np.concatenate([fold.judged for fold in folds])
    assert sorted(together.tolist()) == list(range(n))
    for fold in folds:
        assert sorted([*fold.train, *fold.judged]) == list(range(n))
        assert (np.diff(fold.train) > 0).all()
        assert (np.diff(fold.judged) > 0).all()
    counts = np.array([np.bincount(classes[fold.judged], minlength=81) for fold in folds])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(1)) <= 1


@given(n_groups=st.integers(1, 40), n_folds=st.integers(2, 5), seed=SEEDS)
def test_groups_are_whole_and_judged_once(n_groups: int, n_folds: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    groups = np.unique(drawn.integers(0, n_groups, 120), return_inverse=True)[1]
    strata = drawn.integers(0, 3, 120)
    if groups.max() + 1 < n_folds:
        with pytest.raises(ConfigError, match=r"only \d+ groups? to train on"):
            folds_of_groups(groups, strata, n_folds, seed)
        return
    folds = folds_of_groups(groups, strata, n_folds, seed)
    assert sorted(np.concatenate([fold.judged for fold in folds]).tolist()) == list(range(120))
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.judged])
        assert len(fold.judged)


def test_groups_of_a_class_are_spread() -> None:
    groups = np.repeat(np.arange(20), 5)
    strata = (groups < 5).astype(np.int64)  # five groups of the rare class
    folds = folds_of_groups(groups, strata, 5, 0)
    assert [int(strata[fold.judged].sum()) for fold in folds] == [5] * 5
    assert [len(fold.judged) for fold in folds] == [20] * 5


@given(n_times=st.integers(1, 50), n_folds=st.integers(2, 5), seed=SEEDS)
def test_later_rows_judge(n_times: int, n_folds: int, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, n_times, 100).astype(float)
    if len(np.unique(times)) <= n_folds:
        with pytest.raises(ConfigError, match="different times cannot be divided into"):
            folds_in_order(times, n_folds)
        return
    folds = folds_in_order(times, n_folds)
    assert len(folds) == n_folds
    for fold in folds:
        assert times[fold.train].max() < times[fold.judged].min()
    last = folds[-1]
    assert sorted([*last.train, *last.judged]) == list(range(100))
    judged = np.concatenate([fold.judged for fold in folds])
    assert len(judged) == len(set(judged.tolist()))


def test_blocks_in_order_are_about_as_large() -> None:
    folds = folds_in_order(np.arange(60.0)[::-1], 5)
    assert [(len(fold.train), len(fold.judged)) for fold in folds] == [
        (10, 10),
        (20, 10),
        (30, 10),
        (40, 10),
        (50, 10),
    ]


def test_auto_goes_by_the_rows() -> None:
    assert TableSize(MAX_FOLDED_ROWS + 1).n_folds("auto", MAX_FOLDED_ROWS + 1) == 1
    assert TableSize(MAX_FOLDED_ROWS).n_folds("auto", MAX_FOLDED_ROWS) == 5
    assert TableSize(100).n_folds("auto", 3) == 3, "as many as there are groups"
    assert TableSize(MAX_FOLDED_ROWS + 1).n_folds(7, 10) == 7
    assert [TableSize(n).n_repeats("auto") for n in (FEW_ROWS - 1, FEW_ROWS)] == [3, 1]
    assert TableSize(10).n_repeats(5) == 1


def test_the_seed_decides() -> None:
    classes = np.arange(50) % 2
    first, again, other = (folds_at_random(classes, 5, seed) for seed in (0, 0, 1))
    assert all((a.judged == b.judged).all() for a, b in zip(first, again, strict=True))
    assert not all((a.judged == b.judged).all() for a, b in zip(first, other, strict=True))


def test_a_class_that_a_fold_never_learned_is_known() -> None:
    strata = np.array([0] * 9 + [4])
    assert find_untrained_classes(folds_at_random(strata, 5, 0), strata) == [4]
    assert find_untrained_classes(folds_at_random(strata % 2, 5, 0), strata % 2) == []


# --- tables ---------------------------------------------------------------------------------------

N = 300


@pytest.fixture
def table(tmp_path: Path) -> DataConfig:
    """A row has a number and a day of its own, and a shop among twelve."""
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "n": drawn.permutation(N) + 0.5,
            "shop": drawn.integers(0, 12, N),
            "day": pd.date_range("2024-01-01", periods=N).astype(str),
            "y": drawn.choice(["no", "yes"], N),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    return DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y")


def numbers(dataset: Dataset) -> list[float]:
    return sorted(dataset.train.rows.numbers[:, 0].tolist())


def test_all_rows_but_the_test_part_train_and_judge(table: DataConfig) -> None:
    single, divided = (load_dataset_with_test(replace(table, folds=k), None) for k in (1, 5))
    assert single.test.rows.numbers.tolist() == divided.test.rows.numbers.tolist()
    one, folds = single.dataset, divided.dataset
    assert len(folds.folds) == 5
    assert not len(folds.validation)
    assert len(folds.train) == len(one.train) + len(one.validation) == 240
    assert folds.n_train == folds.epoch_rows == 192
    assert len(folds.judged) == 240
    for number in range(5):
        view = folds.fold(number)
        assert len(view.train) == 192
        assert len(view.validation) == 48
        assert view.n_train == 192
        assert not view.folds
        assert folds.fold(number) is view
    assert any("out-of-fold: 240 rows are judged" in note for note in folds.notes)


def test_no_test_part_is_kept_where_none_is_wanted(table: DataConfig) -> None:
    found = load_dataset_with_test(replace(table, folds=5, test=0.0), None)
    assert (len(found.dataset.train), len(found.test)) == (N, 0)
    found = load_dataset_with_test(replace(table, test=0.0), None)
    single = found.dataset
    assert (len(single.train), len(single.validation), len(found.test)) == (240, 60, 0)


def test_few_rows_are_divided_several_times(table: DataConfig) -> None:
    dataset = load_dataset(replace(table, folds="auto"))
    assert [fold.repeat for fold in dataset.folds] == [0] * 5 + [1] * 5 + [2] * 5
    first, second = dataset.folds[0], dataset.folds[5]
    assert first.judged.tolist() != second.judged.tolist()
    assert len(dataset.judged) == 240


def test_what_is_not_set_changes_no_digest(table: DataConfig) -> None:
    digests = [
        load_dataset(config).digest
        for config in (
            table,
            replace(table, folds=5),
            replace(table, folds=4),
            replace(table, group="shop"),
            replace(table, time="day"),
        )
    ]
    assert len(set(digests)) == 5
    disc = load_dataset(DataConfig()).digest  # as studies of before keep it
    assert disc == "99348b6104c9782b20976db70f4df7d35b47949dbbea4c75b302f426a1de89f3"


@pytest.mark.parametrize("folds", [1, 4])
def test_groups_stay_together_in_all_parts(table: DataConfig, folds: int) -> None:
    config = replace(table, group="shop", folds=folds)
    shops = pd.read_csv(str(table.path)).set_index("n")["shop"]
    found = load_dataset_with_test(config, None)
    dataset, test = found.dataset, found.test
    assert [column.name for column in dataset.columns.all] == ["n"], "days do not repeat"
    parts = [test, dataset.validation, dataset.train] if folds == 1 else [test, dataset.train]
    held = [{int(shops[n]) for n in part.rows.numbers[:, 0]} for part in parts]
    assert sum(map(len, held)) == len(set().union(*held)) == 12
    for number in range(len(dataset.folds)):
        view = dataset.fold(number)
        trained, judged = (
            {int(shops[n]) for n in part.rows.numbers[:, 0]}
            for part in (view.train, view.validation)
        )
        assert not trained & judged


@pytest.mark.parametrize("folds", [1, 3])
def test_order_is_kept_in_all_parts(table: DataConfig, folds: int) -> None:
    days = pd.read_csv(str(table.path)).set_index("n")["day"]
    found = load_dataset_with_test(replace(table, time="day", folds=folds), None)
    dataset, test = found.dataset, found.test
    parts = [dataset.train, dataset.validation, test]
    spans = [sorted(days[n] for n in part.rows.numbers[:, 0]) for part in parts if len(part)]
    assert [len(span) for span in spans] == ([180, 60, 60] if folds == 1 else [240, 60])
    assert all(a[-1] < b[0] for a, b in pairwise(spans))
    for number in range(len(dataset.folds)):
        view = dataset.fold(number)
        assert max(days[n] for n in view.train.rows.numbers[:, 0]) < min(
            days[n] for n in view.validation.rows.numbers[:, 0]
        )


def test_the_column_of_time_is_learned_where_that_is_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"n": np.arange(60) % 7, "day": np.arange(60) // 2, "y": np.arange(60) % 5}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y", time="day")
    before, since = load_dataset(config), load_dataset(replace(config, rules=7))
    assert [column.name for column in before.columns.all] == ["n"]
    assert [column.name for column in since.columns.all] == ["n", "day"]
    assert "it is not learned from" in str(before.notes)
    assert "it is not learned from" not in str(since.notes)
    assert before.digest != since.digest
    np.testing.assert_array_equal(before.train.y, since.train.y)
    without_time = replace(config, time=None)
    assert load_dataset(replace(without_time, rules=7)).digest == (
        load_dataset(without_time).digest
    )


def test_a_refit_has_no_folds(table: DataConfig) -> None:
    config = replace(table, folds=5, group="shop")
    refit = load_dataset(config, RefitRows("train+validation", 0.2))
    assert not refit.folds
    assert refit.epoch_rows is None
    assert len(refit.train) + len(refit.validation) == len(load_dataset(config).train)
    assert len(refit.validation)


def test_the_disc_has_folds_without_a_table() -> None:
    dataset = load_dataset(DataConfig(folds=3, n_train=60, n_validation=30))
    assert (len(dataset.train), len(dataset.validation), len(dataset.folds)) == (90, 0, 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"folds": 0}, r"data\.folds=0: must be auto"),
        ({"folds": "many"}, r"data\.folds=many: must be auto"),
        ({"folds": 301}, r"data\.folds=301: there are only 240 rows to train on and to judge by"),
        ({"folds": 13, "group": "shop"}, r"data\.folds=13: there are only \d+ groups to train on"),
        (
            {"group": "store"},
            r"data\.group=store: data\.path=.* has no such column; it has: n, shop",
        ),
        ({"time": "y"}, r"data\.time=y: this is the target column"),
        ({"time": "n", "group": "shop"}, r"data\.time=n: with data\.group"),
        ({"folds": 5, "sweep_rows": 50}, r"data\.sweep_rows=50: trials with folds"),
        ({"test": 1.0}, r"data\.test=1\.0: must be auto, none, a share"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    table: DataConfig, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_dataset(replace(table, **settings))  # type: ignore[arg-type]


def test_a_group_or_time_that_is_not_known_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": range(9), "g": ["a", None, "b"] * 3, "t": ["May"] * 9, "y": "nyn" * 3}
    )
    frame["y"] = list("nynnynnyn")
    frame.to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y")
    with pytest.raises(ConfigError, match=r"data\.group=g: 3 of 9 rows do not say which group"):
        load_dataset(replace(config, group="g"))
    with pytest.raises(ConfigError, match=r"data\.time=t: 9 of 9 rows do not say when .*'May'"):
        load_dataset(replace(config, time="t"))


@pytest.mark.parametrize("n_groups", [30, 29])
def test_groups_of_one_row_each_are_said_to_keep_nothing_together(
    tmp_path: Path, n_groups: int
) -> None:
    frame = pd.DataFrame({"n": range(30), "y": ["a", "b"] * 15, "g": range(30)})
    frame["g"] = [f"visit {place % n_groups}" for place in frame.g]
    frame.to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y", group="g", folds=3)
    said = [
        note for note in load_dataset(config).notes if note.startswith("data.group=g: each row")
    ]
    assert len(said) == (n_groups == 30)


def test_one_group_only_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(9), "g": "a", "y": list("nynnynnyn")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y", group="g")
    with pytest.raises(ConfigError, match="9 rows are of one group only"):
        load_dataset(config)


def test_a_class_of_one_row_is_named(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(20), "y": [*"ny" * 9, "n", "once"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y", folds=5, test=0.0)
    notes = load_dataset(config).notes
    assert any("not trained on, having too few rows or groups: once." in note for note in notes)


def test_settings_of_a_table_are_refused_without_one() -> None:
    with pytest.raises(ConfigError, match=r"data\.group=a: data=disc reads no file"):
        load_dataset(DataConfig(group="a"))
    with pytest.raises(ConfigError, match=r"data\.folds=5: is for tables"):
        DataConfig(DataKind.python, source="a:b", folds=5)
