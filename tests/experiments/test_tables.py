"""What the comparison of tools on tables is worth: its tables, its losses, its intervals, and how a
portfolio is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def tables(script: Callable[[str], Any]) -> Any:
    return script("013-tables/tables")


def test_a_table_and_its_splits_are_the_same_whenever_they_are_made(tables: Any) -> None:
    for name in ("missing-not-at-random", "drift", "iris"):
        first, second = (list(tables.splits(tables.table(name))) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            pd.testing.assert_frame_equal(one.train, other.train)
            pd.testing.assert_frame_equal(one.test, other.test)


def test_every_table_is_of_its_task_and_no_row_is_learned_from_and_scored_on(tables: Any) -> None:
    for name in tables.names(None):
        table = tables.table(name)
        is_number = pd.api.types.is_numeric_dtype(table.frame[tables.TARGET])
        assert is_number == (table.task == tables.AMOUNTS), name
        for split in tables.splits(table):
            assert not set(split.train.index) & set(split.test.index), name
            if not is_number:
                assert set(split.test[tables.TARGET]) == set(split.train[tables.TARGET]), name


def test_the_test_rows_of_a_table_in_order_come_later(tables: Any) -> None:
    parts = list(tables.splits(tables.table("drift")))
    assert len(parts) == tables.N_SPLITS
    assert all(part.train.day.max() <= part.test.day.min() for part in parts)


def test_rows_that_belong_together_are_on_one_side(tables: Any) -> None:
    for part in tables.splits(tables.table("patients")):
        assert set(part.train.patient).isdisjoint(part.test.patient)
        assert len(part.test) == pytest.approx(750, abs=150)


def test_losses_are_of_the_class_that_it_was_in_whatever_order_the_tool_has_them(
    script: Callable[[str], Any], tables: Any
) -> None:
    frame = pd.DataFrame({tables.TARGET: ["b", "a", "c"]})
    split = tables.Split("some", tables.CLASSES, 0, frame, frame)
    said = np.array([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]])
    losses, wrong = script("013-tables/peers").losses_of(split, said, ["b", "a"])
    assert losses[:2] == pytest.approx(-np.log([0.75, 0.5]))
    assert losses[2] == pytest.approx(-np.log(1e-7))  # a class that the tool does not know
    assert wrong.tolist() == [False, True, True]


def test_the_interval_of_a_difference_tells_what_is_more_than_chance(
    script: Callable[[str], Any],
) -> None:
    compared = script("013-tables/peers_report").compared
    random = np.random.default_rng(0)
    other, noise = random.exponential(size=400), random.normal(scale=0.3, size=400)
    once = np.ones(400)
    worse = compared(other + 0.1, other, once, squared=False)
    assert worse.is_behind
    assert worse.percent == pytest.approx(10 / other.mean())
    same = compared(other + noise - noise.mean(), other, once, squared=False)
    assert not same.is_behind
    assert same.low < 0 < same.high
    assert compared(4 * other, other, once, squared=True).percent == pytest.approx(100)


def test_rows_that_were_scored_twice_count_as_one_by_chance(script: Callable[[str], Any]) -> None:
    compared = script("013-tables/peers_report").compared
    other = np.random.default_rng(0).exponential(size=100)
    ours = other + np.random.default_rng(1).normal(size=100)
    once = compared(ours, other, np.ones(100), squared=False)
    twice = compared(2 * ours, 2 * other, np.full(100, 2.0), squared=False)
    assert twice.standard_error == pytest.approx(once.standard_error)


def test_what_was_interrupted_goes_on_and_what_failed_is_known(
    script: Callable[[str], Any], tmp_path: Path
) -> None:
    peers = script("013-tables/peers")
    key = '{"table": "iris", "split": 0, "tool": "lightgbm", "minutes": 0}'
    lines = [
        f'{{"key": {key}, "n_train": 112, "failed": "killed"}}',
        f'{{"key": {key}, "n_train": 112, "loss": 0.5}}',
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n")
    assert peers.read(tmp_path) == [peers.Result(peers.Key("iris", 0, "lightgbm", 0), 112, 0.5)]


def test_a_portfolio_takes_what_adds_most_to_what_it_has(script: Callable[[str], Any]) -> None:
    greedy = script("013-tables/portfolio").greedy
    losses = np.array(  # by table, of four params
        [[0.5, 0.0, 1.0, 0.1], [0.5, 0.2, 1.0, 2.0], [0.5, 2.0, 0.0, 2.0], [0.5, 2.0, 0.4, 2.0]]
    )
    assert greedy(losses, 3) == [0, 1, 2]  # never bad, then where that is worst for most
    assert greedy(losses[:, :1], 3) == [0]
