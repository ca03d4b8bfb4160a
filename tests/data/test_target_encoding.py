"""Target encoding: nothing leaks, chance gains nothing, and what helps is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from automl.config import DataConfig, DataKind, DataRule
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, RefitRows
from automl.data.load import load_dataset
from automl.data.pair_selection import out_of_fold_gain, select_encoded
from automl.data.preprocessing import Preprocessing
from automl.data.target_encoding import TargetEncoding, count_levels, fit_encoding
from automl.errors import ConfigError
from tests.models.tables import TARGET, by_class, shops_frame

BY_SHOP = f"{TARGET} by shop"
KINDS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "numbers": lambda frame: frame,
    "two classes": lambda frame: by_class(frame, 2),
    "three classes": lambda frame: by_class(frame, 3),
}


def loaded(folder: Path, frame: pd.DataFrame, **settings: Any) -> Dataset:
    frame.to_csv(folder / "t.csv", index=False)
    config = DataConfig(
        DataKind.csv,
        str(folder / "t.csv"),
        TARGET,
        **{"rules": 5, "folds": 5, "test": 0.0, "combine": [BY_SHOP], **settings},
    )
    return load_dataset(config)


def encoded_cells(data: Dataset, rows: Any) -> Any:
    return rows.numbers[:, [place for place, _ in data.columns.encoded]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_target_gains_nothing(kind: str, seed: int) -> None:
    frame = KINDS[kind](shops_frame(1500 + seed, 200, is_random=True))
    inputs = frame.drop(columns=TARGET)
    classes, values = np.unique(frame[TARGET], return_inverse=True)
    y = frame[TARGET].to_numpy(np.float64) if kind == "numbers" else values.astype(np.int64)
    assert len(classes) > 1
    preprocessing = Preprocessing.fit(inputs).with_target_means(inputs, ["shop"], y)
    columns, numbers = preprocessing.columns, preprocessing.read(inputs).numbers
    own = fit_encoding(columns, numbers, y)[1]
    for place, column in columns.encoded:
        told = y if kind == "numbers" else y == column.encoded_class
        cells = own[:, place]
        assert not cells.std() or abs(np.corrcoef(cells, told)[0, 1]) < 4 / len(y) ** 0.5
    assert select_encoded(learned_as_detected(inputs), inputs, y) == ()
    targets: Any = (y[:, None] == np.unique(y)).astype(float) if y.dtype == np.int64 else y[:, None]
    before = Preprocessing.fit(inputs)
    columns_and_rows = (before.columns, before.read(inputs)), (columns, preprocessing.read(inputs))
    with threadpool_limits(1):
        gain = out_of_fold_gain(*columns_and_rows, y, targets)
    assert gain[1] < 0, "far from a choice by chance"


def learned_as_detected(frame: pd.DataFrame) -> Preprocessing:
    from automl.data.column_kinds import read_columns

    return Preprocessing.fit(frame, read_columns(frame, {}, detect=True))


@pytest.mark.parametrize("kind", KINDS)
def test_what_helps_is_chosen_and_said(kind: str, tmp_path: Path) -> None:
    frame = KINDS[kind](shops_frame(1500, 100))
    data = loaded(tmp_path, frame, combine="auto", rules=8)
    assert data.columns.combined_names(TARGET) == [BY_SHOP]
    until_clear = loaded(tmp_path, frame, combine="auto", rules=DataRule.combine_judgement)
    assert until_clear.columns == data.columns
    assert f"combined columns: {BY_SHOP} (data.combine=none" in str(data.notes)
    assert loaded(tmp_path, frame, combine="auto").columns.encoded == ()
    related = {"combine": "auto", "rules": 8, "group": "b"}
    assert loaded(tmp_path, frame, **related).columns.encoded == ()


@pytest.mark.parametrize("kind", KINDS)
def test_no_target_of_a_judged_row_reaches_a_cell_of_its_fold(kind: str, tmp_path: Path) -> None:
    data = loaded(tmp_path, KINDS[kind](shops_frame(600, 80)))
    fold = data.fold(1)
    y = data.train.y.copy()
    y[data.folds[1].judged] = y[::-1][data.folds[1].judged]
    other = replace(data, train=replace(data.train, y=y)).fold(1)
    assert (other.validation.y != fold.validation.y).any()
    assert other.encoding == fold.encoding
    for part, same in ((other.train, fold.train), (other.validation, fold.validation)):
        np.testing.assert_array_equal(part.rows.numbers, same.rows.numbers)


def test_a_row_that_trains_is_encoded_without_its_own_target(tmp_path: Path) -> None:
    fold = loaded(tmp_path, shops_frame(600, 80)).fold(0)
    levels = loaded(tmp_path, shops_frame(600, 80)).train.rows.take(fold_rows(tmp_path)).numbers
    before = encoded_cells(fold, fold.train.rows)
    for row in (0, 7, 100):
        y = fold.train.y.copy()
        y[row] = -y[row] + 1
        cells = fit_encoding(fold.columns, levels, y)[1][:, [n for n, _ in fold.columns.encoded]]
        assert cells[row] == before[row]
        assert (cells != before).any()


def fold_rows(folder: Path) -> Any:
    return loaded(folder, shops_frame(600, 80)).folds[0].train


def test_means_of_few_rows_are_drawn_to_the_mean_of_all(tmp_path: Path) -> None:
    frame = shops_frame(900, 80)
    frame.loc[0, "shop"], frame.loc[0, TARGET] = "once", 50.0
    data = loaded(tmp_path, frame, folds=1).encoded
    ((place, column),) = data.columns.encoded
    assert (column.name, count_levels(data.columns, column)) == ("shop.target0", 81)
    assert data.encoding is not None
    assert max(data.encoding.tables[0]) < 3, "a text seen once is among the rare ones"
    told = np.corrcoef(data.validation.rows.numbers[:, place], data.validation.y)[0, 1]
    assert told > 0.8
    assert data.encoded is data


def test_a_final_training_encodes_its_own_rows(tmp_path: Path) -> None:
    frame = shops_frame(900, 80)
    frame.to_csv(tmp_path / "t.csv", index=False)
    combine = [BY_SHOP, f"{TARGET} by x"]
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), TARGET, rules=5, combine=combine)
    with pytest.raises(ConfigError, match=r"data\.combine=y by x: .*or 'y by' and one of"):
        load_dataset(config)
    final = load_dataset(config, RefitRows("all"))
    assert final.columns.combined_names(TARGET) == [BY_SHOP]
    assert len(final.encoded.train) == 900


def test_few_categories_may_be_named(tmp_path: Path) -> None:
    data = loaded(tmp_path, shops_frame(600, 8))
    assert data.columns.combined_names(TARGET) == [BY_SHOP]
    unseen = Preprocessing(data.columns).read(pd.DataFrame({"a": [1], "b": [1], "shop": ["new"]}))
    encoding = data.fold(0).encoding
    assert encoding is not None
    assert encoding.encode(data.columns, unseen.numbers)[0, 2] == 0


def test_it_is_stored_as_plain_values(tmp_path: Path) -> None:
    data = loaded(tmp_path, by_class(shops_frame(600, 80), 3))
    plain, encoding = data.columns.plain(), data.fold(0).encoding
    assert plain["format"] == "automl-columns-6"
    assert TableColumns.from_plain(plain) == data.columns
    assert encoding is not None
    assert TargetEncoding.from_plain(encoding.plain()) == encoding
    encoding.check(data.columns)
    with pytest.raises(ValueError, match="not those of its columns"):
        replace(encoding, tables=encoding.tables[1:]).check(data.columns)
    wrongs: list[Any] = [None, {}, [0.5], [["a"]], [[1]], [[float("nan")]]]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="means"):
            TargetEncoding.from_plain(wrong)
