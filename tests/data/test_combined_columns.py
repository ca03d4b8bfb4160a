"""Combined columns: what their cells are, which pairs a table gets, and what is told of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from automl.config import DataConfig, DataKind
from automl.data.columns import CombinedColumn, TableColumns
from automl.data.combined_columns import add_pairs, find_pair
from automl.data.dataset import Dataset, RefitRows
from automl.data.load import load_dataset
from automl.data.pair_selection import (
    MIN_GAIN,
    MIN_T,
    is_clear,
    is_enough,
    out_of_fold_gain,
    select_pairs,
)
from automl.data.preprocessing import Preprocessing
from automl.data.scoring.model_findings import permutation_importances
from automl.errors import ConfigError

Frame = pd.DataFrame
PAIRS = [
    CombinedColumn("a", "+", "b"),
    CombinedColumn("a", "-", "b"),
    CombinedColumn("a", "*", "b"),
    CombinedColumn("b", "/", "a"),
    CombinedColumn("a", "*", "b", "e"),
    CombinedColumn("c", "&", "d"),
]


def random_frame(seed: int, n_rows: int = 800) -> Frame:
    """Return four numbers and three categories of four values each, and no target."""
    rng = np.random.default_rng(seed)
    positive, normal = rng.lognormal(sigma=0.7, size=(n_rows, 2)), rng.normal(size=(n_rows, 2))
    frame = pd.DataFrame(np.column_stack([positive, normal]), columns=list("abef"))
    return frame.assign(**{name: rng.choice(list("pqrs"), n_rows) for name in "cdg"})


def learned(frame: Frame) -> Preprocessing:
    preprocessing = Preprocessing.fit(frame)
    return preprocessing.with_pairs(frame, PAIRS)


def chosen(frame: Frame, y: Any) -> list[str]:
    preprocessing = Preprocessing.fit(frame)
    pairs, until_clear = (
        select_pairs(preprocessing, frame, np.asarray(y), of_three=True, until_clear=until_clear)
        for until_clear in (False, True)
    )
    assert pairs == until_clear, "the first folds decide like all"
    return [pair.name for pair in pairs]


def test_cells_follow_from_those_of_the_row() -> None:
    preprocessing = learned(random_frame(0))
    assert [column.name for column in preprocessing.columns.all[-6:]] == [
        *("a + b", "a - b", "a * b", "b / a", "a * b * e", "c & d")
    ]
    cells = {"a": [4.0, 0.0, None], "b": [2.0, 1.0, 1.0], "c": ["p", "p", "new"]}
    rows = preprocessing.read(pd.DataFrame(cells | {"d": ["q", "p", "q"], "e": 3, "f": 1, "g": ""}))
    missing = np.nan
    expected = [[6, 2, 8, 0.5, 24], [1, -1, 0, missing, 0], [missing] * 5]
    np.testing.assert_array_equal(rows.numbers[:, 4:], expected)
    crossed = preprocessing.columns.categories[-1]
    assert [crossed.categories[code] for code in rows.codes[:2, -1]] == ["0,1", "0,0"]
    assert rows.codes[2, -1] == len(crossed.categories)


def test_a_row_is_read_by_itself_as_among_others() -> None:
    frame = random_frame(1)
    preprocessing = learned(frame)
    together, alone = preprocessing.read(frame), preprocessing.read(frame[7:8])
    np.testing.assert_array_equal(alone.numbers, together.numbers[7:8])
    np.testing.assert_array_equal(alone.codes, together.codes[7:8])


def test_a_judgement_ends_as_soon_as_it_is_clear() -> None:
    frame = random_frame(0, 1500)
    product = [CombinedColumn("e", "*", "f")]
    before = Preprocessing.fit(frame)
    after = before.with_pairs(frame, product)
    own, more = ((p.columns, p.read_cells(frame)[0]) for p in (before, after))
    y = (frame.e * frame.f).to_numpy()
    noise = np.random.default_rng(0).normal(size=len(y))

    def gains(y: Any) -> tuple[tuple[float, float], tuple[float, float]]:
        with threadpool_limits(1):
            every, until_clear = (
                out_of_fold_gain(own, more, y, y[:, None], until_clear=until_clear)
                for until_clear in (False, True)
            )
        return every, until_clear

    every, first = gains(y)
    assert [is_enough(*every), is_enough(*first)] == [True, True]
    assert first[1] < 0.6 * every[1], "of a fifth of the rows, which tell less"
    every, first = gains(noise)
    assert [is_enough(*every), is_enough(*first)] == [False, False]
    assert first != every
    every, first = gains(noise + 0.4 * y)
    assert first == every, "all folds were needed"


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_what_is_clear_is_decided_as_if_it_goes_on(share: float) -> None:
    n_clear = 0
    for t in np.linspace(-8, 20, 113):
        for gain in (t * error for error in (1e-5, 1e-3, 0.003, 0.01, 0.1)):
            if is_clear(gain, t, share=share):
                n_clear += 1
                assert is_enough(gain, t) == is_enough(gain, t / share**0.5)
    assert n_clear > 100
    assert not is_clear(1.5 * MIN_GAIN, MIN_T * share**0.5, share=share), "just enough"
    assert not is_clear(MIN_GAIN, 2 * MIN_T, share=share), "just large enough"


def test_they_are_stored_as_plain_values() -> None:
    columns = learned(random_frame(0)).columns
    plain = columns.plain()
    assert TableColumns.from_plain(plain) == columns
    assert columns.own.plain() == Preprocessing.fit(random_frame(0)).columns.plain()
    assert sorted(plain["pairs"][0]) == ["left", "operation", "right"], "as older versions wrote it"
    for wrong in ({"left": "nobody"}, {"operation": "**"}, {"operation": "&"}, {"third": "e"}):
        with pytest.raises(ValueError, match="nothing makes the column 'a"):
            TableColumns.from_plain(plain | {"pairs": [plain["pairs"][0] | wrong] * 6})


@pytest.mark.parametrize("seed", range(3))
def test_a_random_target_gains_nothing(seed: int) -> None:
    frame, rng = random_frame(seed), np.random.default_rng([seed, 1])
    assert chosen(frame, rng.normal(size=len(frame))) == []
    assert chosen(frame, rng.integers(2 + seed % 3, size=len(frame))) == []


def xor(frame: Frame) -> Any:
    return (frame.c.isin(["p", "q"]) ^ frame.d.isin(["p", "q"])) ^ (frame.a > 3)


@pytest.mark.parametrize(
    ("make_target", "pair"),
    [
        (lambda f: f.e * f.f, "e * f"),
        (lambda f: f.a / f.b + f.e / 9, "a / b"),
        (lambda f: xor(f).astype(np.int64), "c & d"),
    ],
)
def test_a_pair_that_decides_is_found(make_target: Callable[[Frame], Any], pair: str) -> None:
    frame = random_frame(0, 1500)
    assert pair in chosen(frame, make_target(frame))


def test_a_product_of_three_is_found_where_no_two_say_anything(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, size=(1500, 5))
    frame = pd.DataFrame(x, columns=list("abefg")).assign(
        y=np.where(x[:, :3].prod(1) > 0, "odd", "even")
    )
    found = load_dataset(written(tmp_path, frame, test=0.0, rules=6)).columns
    assert found.pair_names[0] == "a * b * e"
    assert load_dataset(written(tmp_path, frame, test=0.0, rules=5)).columns.pairs == ()


def test_few_rows_combine_nothing() -> None:
    frame = random_frame(0, 400)
    assert chosen(frame, (frame.a / frame.b)) == []


def written(folder: Path, frame: Frame, **settings: Any) -> DataConfig:
    frame.to_csv(folder / "t.csv", index=False)
    return DataConfig(DataKind.csv, str(folder / "t.csv"), "y", **settings)


def ratio_frame() -> Frame:
    frame = random_frame(2, 1200)
    noise = np.random.default_rng(0).normal(scale=0.2, size=len(frame))
    return frame.assign(y=frame.a / frame.b + noise)


def columns_of(data: Dataset) -> Any:
    return data.columns.plain()


def test_rows_that_judge_are_not_learned_from(tmp_path: Path) -> None:
    frame, settings = ratio_frame(), {"rules": 5, "test": 0.0}
    config = written(tmp_path, frame, **settings)
    data = load_dataset(config)
    assert data.columns.pairs
    judged = frame.y.isin(data.validation.y)
    assert judged.sum() == len(data.validation) == 240
    frame.loc[judged, list("abefy")] *= 1.7
    changed = load_dataset(written(tmp_path, frame, **settings))
    assert columns_of(changed) == columns_of(data)
    assert changed.validation.rows.numbers[0, 0] != data.validation.rows.numbers[0, 0]


@pytest.mark.parametrize("related", [{"group": "g"}, {"time": "e"}])
def test_auto_combines_nothing_of_rows_that_are_related(
    related: dict[str, str], tmp_path: Path
) -> None:
    config = written(tmp_path, ratio_frame(), combine="auto", **related)
    assert load_dataset(config).columns.pairs == ()


def test_pairs_may_be_named_and_are_said(tmp_path: Path) -> None:
    config = written(tmp_path, ratio_frame(), combine=["a/b", "e*a * b", "c & d"])
    data = load_dataset(config)
    assert data.columns.pair_names == ["a / b", "e * a * b", "c & d"]
    assert "combined columns: a / b, e * a * b, c & d (data.combine=none" in str(data.notes)
    final = load_dataset(replace(config, combine=["a/b", "gone * b"]), RefitRows("all"))
    assert final.columns.pair_names == ["a / b"]
    for unknown in ("a & b", "a * b * a", "a * b / e", "a / b * e", "a * b * e * f"):
        with pytest.raises(ConfigError, match=re.escape(f"data.combine={unknown}: a combined")):
            load_dataset(replace(config, combine=[unknown]))
    for wrong in ("on", 3, [3]):
        with pytest.raises(ConfigError, match=r"data\.combine"):
            replace(config, combine=wrong)


def test_a_pair_that_gives_the_target_away_is_named(tmp_path: Path) -> None:
    frame = random_frame(0)
    for y, pair in ((frame.a > frame.b, "a - b"), (frame.c + frame.d, "c & d")):
        notes = load_dataset(written(tmp_path, frame.assign(y=y.astype(str)))).notes
        (line,) = [note for note in notes if note.startswith("two columns together give")]
        assert pair in line
        assert f"data.columns.{pair[0]}=drop" in line
    y = xor(frame) ^ (np.random.default_rng(0).random(len(frame)) < 0.05)
    assert "together" not in str(load_dataset(written(tmp_path, frame.assign(y=y))).notes)


def test_a_shuffled_column_is_combined_anew() -> None:
    frame = random_frame(0)
    preprocessing = learned(frame)
    columns, rows = preprocessing.columns, preprocessing.read(frame)

    def loss(changed: Any) -> float:
        sums = changed.numbers[:, 0] + changed.numbers[:, 1]
        return float(np.abs(sums - changed.numbers[:, 4]).max())

    found = permutation_importances(columns, rows, loss, repeats=range(1), seed=0)
    assert sorted(found.index) == sorted("abcdefg")
    assert found["importance"].max() == 0


def test_a_name_may_hold_the_sign_of_an_operation() -> None:
    frame = pd.DataFrame({"m/s": [1.0, 2, 3, 5], "a-b": [2.0, 1, 7, 9]})
    columns = Preprocessing.fit(frame).columns
    assert find_pair(columns, "m/s / a-b") == CombinedColumn("m/s", "/", "a-b")
    assert find_pair(columns, "m/s") is None
    combined, rows = add_pairs(
        columns, Preprocessing(columns).read(frame), [CombinedColumn("m/s", "-", "a-b")]
    )
    assert combined.pair_names == ["m/s - a-b"]
    assert rows.numbers[:, 2].tolist() == [-1, 1, -4, -4]
