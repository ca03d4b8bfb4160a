"""Features of raw rows: finite, scaled, learned from one part, the same after a round trip."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.data.columns import MAX_CATEGORIES, CategoryColumn, NumberColumn, TableColumns
from automl.data.features import STANDARDISED_LIMIT, n_features, one_hot_features
from automl.data.preprocessing import Preprocessing
from automl.errors import ConfigError, UnreadableCellWarning
from tests.features import features

TRAIN = pd.DataFrame(
    {
        "n": [1.0, 2.0, None, 5.0] * 10,
        "c": ["a", "b", "a", "a"] * 10,
        "m": ["x", None, " x", "?"] * 10,
    }
)


def names(preprocessing: Preprocessing) -> list[str]:
    return [column.name for column in preprocessing.columns.all]


def test_numbers_are_standardised_and_missing_ones_marked() -> None:
    x = features(Preprocessing.fit(TRAIN[["n"]]), TRAIN[["n"]])
    filled = TRAIN["n"].fillna(2.0).to_numpy()  # 2 is the median
    np.testing.assert_allclose(x[:, 0], (filled - filled.mean()) / filled.std(), rtol=1e-6)
    np.testing.assert_array_equal(x[:, 1], TRAIN["n"].isna())


def test_categories_have_a_feature_each_and_missing_is_one() -> None:
    preprocessing = Preprocessing.fit(TRAIN[["c", "m"]])
    assert preprocessing.columns.all == (
        CategoryColumn("c", ("a", "b"), has_other=False),
        CategoryColumn("m", ("", "x"), has_other=False),
    )
    x = features(preprocessing, pd.DataFrame({"c": ["b", "a"], "m": [None, "x "]}))
    np.testing.assert_array_equal(x, [[0, 1, 1, 0], [1, 0, 0, 1]])


def test_what_was_never_seen_still_gives_features() -> None:
    preprocessing = Preprocessing.fit(TRAIN.fillna({"n": 2.0}))
    x = features(preprocessing, pd.DataFrame({"m": ["new"], "n": [None], "c": [None]}))
    assert preprocessing.columns.numbers[0].has_indicator is False
    fill = (2.0 - preprocessing.columns.numbers[0].mean) / preprocessing.columns.numbers[0].scale
    np.testing.assert_allclose(x, [[fill, 0, 0, 0, 0]], rtol=1e-6)


def test_rare_categories_share_a_feature_with_unseen_ones() -> None:
    frame = pd.DataFrame({"c": ["a"] * 10 + ["b"] * 10 + ["rare1", "rare2"]})
    preprocessing = Preprocessing.fit(frame)
    assert preprocessing.columns.all == (CategoryColumn("c", ("a", "b"), has_other=True),)
    x = features(preprocessing, pd.DataFrame({"c": ["rare1", "new", None, "b"]}))
    np.testing.assert_array_equal(x, [[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 1, 0]])


def test_texts_of_many_kinds_do_not_explode() -> None:
    frame = pd.DataFrame(
        {
            "many": [f"t{i % 1000}" for i in range(5000)],
            "id": [f"id{i}" for i in range(5000)],
            "n": np.arange(5000.0),
        }
    )
    preprocessing = Preprocessing.fit(frame)
    assert names(preprocessing) == ["many", "n"]
    assert n_features(preprocessing.columns) == MAX_CATEGORIES + 1
    assert features(preprocessing, frame).shape == (5000, MAX_CATEGORIES + 1)


def test_columns_that_say_nothing_are_left_out() -> None:
    frame = pd.DataFrame(
        {
            "constant": [3.0] * 4,
            "empty": [None] * 4,
            "same": ["x"] * 4,
            "nan": [np.nan] * 4,
            "partly": [7.0, None, 7.0, 7.0],
        }
    )
    preprocessing = Preprocessing.fit(frame)
    assert names(preprocessing) == ["partly"]
    np.testing.assert_array_equal(features(preprocessing, frame), [[0, 0], [0, 1], [0, 0], [0, 0]])


def test_absurd_cells_end_at_the_clip() -> None:
    preprocessing = Preprocessing.fit(TRAIN[["n"]])
    with pytest.warns(UnreadableCellWarning, match="n: 2 of 4 cells .* first '1e.300' in row 2"):
        x = features(preprocessing, pd.DataFrame({"n": [1e30, -1e30, 1e300, np.inf]}))
    assert x[:2, 0].tolist() == [STANDARDISED_LIMIT, -STANDARDISED_LIMIT]
    np.testing.assert_array_equal(x[2:, 1], 1)  # beyond float32: missing


def test_a_frame_may_come_with_other_types_and_spaces() -> None:
    preprocessing = Preprocessing.fit(pd.DataFrame({"n": [1.0, 2.0] * 5, "code": ["1", "b"] * 5}))
    expected = features(preprocessing, pd.DataFrame({"n": [1.0], "code": ["1"]}))
    for code in (1, 1.0, " 1", "1.0"):
        frame = pd.DataFrame({" code": [code], "n ": [" 1"], "extra": [0]})
        np.testing.assert_array_equal(features(preprocessing, frame), expected)


def test_an_array_has_the_columns_in_their_order() -> None:
    preprocessing = Preprocessing.fit(pd.DataFrame({"a": [0.0, 2.0], "b": [0.0, 4.0]}))
    np.testing.assert_array_equal(features(preprocessing, np.array([[2.0, 0.0]])), [[1, -1]])
    with pytest.raises(ConfigError, match=r"An array of shape \(1, 3\): rows must be \(N, 2\)"):
        features(preprocessing, np.zeros((1, 3)))


def test_no_rows_give_no_rows() -> None:
    preprocessing = Preprocessing.fit(TRAIN)
    assert features(preprocessing, TRAIN[:0]).shape == (0, n_features(preprocessing.columns))


def test_a_frame_that_does_not_match_is_refused() -> None:
    preprocessing = Preprocessing.fit(TRAIN)
    with pytest.raises(ConfigError, match="lacks the columns n, m"):
        features(preprocessing, TRAIN[["c"]])
    with pytest.raises(ConfigError, match=r"Column n held numbers .* for example 'low'"):
        features(preprocessing, TRAIN.assign(n="low"))
    twice = pd.concat([TRAIN, TRAIN[["n"]]], axis=1)
    with pytest.raises(ConfigError, match="two columns n: rename one"):
        features(preprocessing, twice)


def test_the_plain_form_is_plain() -> None:
    plain = Preprocessing.fit(TRAIN).columns.plain()
    assert json.loads(json.dumps(plain)) == plain
    with pytest.raises(ValueError, match="automl-columns-1"):
        Preprocessing.from_plain({"format": "other", "columns": []})


CELLS = st.one_of(
    st.none(),
    st.sampled_from(["a", "b", "?", "", " NA"]),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, st.floats()), min_size=2, max_size=30))
def test_any_cells_give_finite_features_and_the_same_bits_after_a_round_trip(
    cells: list[tuple[object, object, float]],
) -> None:
    frame = pd.DataFrame(cells, columns=pd.Index(["a", "b", "c"]))
    learned = Preprocessing.fit(frame[: len(frame) // 2 + 1])
    again = Preprocessing.from_plain(json.loads(json.dumps(learned.columns.plain())))
    rows, unknown = learned.read_cells(frame)
    x = one_hot_features(learned.columns, rows)
    assert x.dtype == np.float32
    assert x.shape == (len(frame), n_features(learned.columns))
    assert np.isfinite(x).all()
    rows_again, unknown_again = again.read_cells(frame)
    assert x.tobytes() == one_hot_features(again.columns, rows_again).tobytes()
    assert unknown_again == unknown


def test_one_row_alone_gives_what_it_gives_among_others() -> None:
    preprocessing = Preprocessing.fit(TRAIN)
    whole = features(preprocessing, TRAIN)
    for i in range(4):
        np.testing.assert_array_equal(features(preprocessing, TRAIN[i : i + 1])[0], whole[i])


def test_scikit_learn_says_nothing_on_the_way() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned = TableColumns((NumberColumn("a", 0.0, 1.0, 0.0, False),))
        features(Preprocessing(learned), [[1.0]])
        features(Preprocessing.fit(TRAIN), TRAIN)
