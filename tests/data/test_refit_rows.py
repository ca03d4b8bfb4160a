"""The rows of a final training: which, each once, and what is learned from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind, Task
from automl.data.dataset import Dataset, DatasetPart, RefitRows, join_parts
from automl.data.load import load_dataset, load_dataset_with_test
from automl.errors import ConfigError

DISC = DataConfig(n_train=60, n_validation=40)


@pytest.fixture
def table(tmp_path: Path) -> DataConfig:
    """100 rows, each with a number of its own."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.permutation(100) + 0.5, "y": rng.choice(["no", "yes"], 100)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y")


def numbers(part: DatasetPart) -> list[float]:
    return sorted(part.rows.numbers[:, 0].tolist())


def sizes(data: Dataset) -> tuple[int, int]:
    return len(data.train), len(data.validation)


@pytest.mark.parametrize(
    ("rows", "hold_out", "expected"),
    [
        ("train", None, (60, 20)),
        ("train+validation", None, (80, 0)),
        ("all", None, (100, 0)),
        ("train", 0.1, (54, 6)),
        ("train+validation", 0.05, (76, 4)),
        ("all", 0.05, (95, 5)),
    ],
)
def test_of_a_table(
    rows: str, hold_out: float | None, expected: tuple[int, int], table: DataConfig
) -> None:
    before, test = load_dataset(table), load_dataset_with_test(table, None).test
    data = load_dataset(table, RefitRows(rows, hold_out))
    assert sizes(data) == expected
    of = {"train": (before.train,), "train+validation": (before.train, before.validation)}
    wanted = join_parts(*of.get(rows, (before.train, before.validation, test)))
    if (rows, hold_out) == ("train", None):
        assert numbers(data.train) == numbers(wanted)
        assert numbers(data.validation) == numbers(before.validation)
    else:
        assert numbers(join_parts(data.train, data.validation)) == numbers(wanted)
    again = load_dataset(table, RefitRows(rows, hold_out))
    assert numbers(again.train) == numbers(data.train)
    assert again.digest == data.digest != before.digest


def test_what_is_learned_of_columns_is_from_the_rows_that_train(tmp_path: Path) -> None:
    values = np.arange(100.0)
    pd.DataFrame({"n": values % 7, "y": values}).to_csv(tmp_path / "t.csv", index=False)
    config = DataConfig(DataKind.csv, str(tmp_path / "t.csv"), "y", task=Task.regression)
    data = load_dataset(config, RefitRows("all"))
    assert data.target_mean == pytest.approx(49.5)
    assert data.target_scale == pytest.approx(values.std())


@pytest.mark.parametrize(
    ("rows", "hold_out", "expected"),
    [
        ("train", None, (60, 40)),
        ("train+validation", None, (100, 0)),
        ("all", None, (140, 0)),
        ("all", 0.1, (126, 14)),
    ],
)
def test_of_the_disc(rows: str, hold_out: float | None, expected: tuple[int, int]) -> None:
    data = load_dataset(DISC, RefitRows(rows, hold_out))
    assert sizes(data) == expected
    if rows == "all":
        whole = [
            load_dataset(DISC).train,
            load_dataset(DISC).validation,
            load_dataset_with_test(DISC, None).test,
        ]
        assert numbers(join_parts(data.train, data.validation)) == numbers(join_parts(*whole))


@pytest.mark.parametrize(("rows", "expected"), [("train", (60, 20)), ("train+validation", (80, 0))])
def test_of_a_search_on_a_part(rows: str, expected: tuple[int, int], table: DataConfig) -> None:
    part = replace(table, sweep_rows=0.5)
    data, whole = load_dataset(part, RefitRows(rows)), load_dataset(table, RefitRows(rows))
    assert len(load_dataset(part).train) == 30
    assert sizes(data) == expected
    assert numbers(data.train) == numbers(whole.train)


def test_too_few_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^hold_out=0\.99: 100 rows leave too few"):
        load_dataset(DISC, RefitRows("train+validation", 0.99))
