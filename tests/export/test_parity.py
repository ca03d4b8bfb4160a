"""When an export says what the model says: values in, an error with both values out."""

from __future__ import annotations

import numpy as np
import pytest

from automl.data.columns import TableColumns
from automl.export.parity import TOLERANCE, ParityError, compare_scores, odd_rows
from tests.export.conftest import ROWS

UNIT = (0.0, 1.0)
OURS = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
NAMES = ["row 1", "row 2", "row 3"]


def test_the_largest_difference_is_told() -> None:
    parity = compare_scores(OURS, OURS + np.array([[0, 0], [0, 3e-6], [0, 0]]), NAMES, UNIT)
    assert parity.n_rows == 3
    assert parity.largest == pytest.approx(3e-6)


def test_the_row_and_both_values_are_named() -> None:
    theirs = OURS + np.array([[0, 0], [2e-5, -2e-5], [0, 0]])
    with pytest.raises(ParityError, match=r"on row 2: 0\.40002, 0\.59998 exported, 0\.4, 0\.6 by"):
        compare_scores(OURS, theirs, NAMES, UNIT)


def test_no_number_is_no_agreement() -> None:
    with pytest.raises(ParityError, match="row 3: nan"):
        compare_scores(OURS, np.array([[0.9, 0.1], [0.4, 0.6], [np.nan, 0.5]]), NAMES, UNIT)


def test_another_label_is_refused_within_the_tolerance() -> None:
    ours = np.array([[0.5 + 2e-6, 0.5 - 2e-6]])
    with pytest.raises(ParityError, match="row 1"):
        compare_scores(ours, ours[:, ::-1], ["row 1"], UNIT)


def test_a_tie_has_two_right_labels() -> None:
    ours = np.array([[0.5 + 4e-7, 0.5 - 4e-7]])
    assert compare_scores(ours, ours[:, ::-1], ["row 1"], UNIT).n_rows == 1


def test_where_a_threshold_tells_classes_apart_labels_go_by_it() -> None:
    ours = np.array([[0.7 - 2e-6, 0.3 + 2e-6]])
    theirs = np.array([[0.7 + 2e-6, 0.3 - 2e-6]])
    assert compare_scores(ours, theirs, ["row 1"], UNIT).n_rows == 1
    with pytest.raises(ParityError, match="row 1"):
        compare_scores(ours, theirs, ["row 1"], UNIT, threshold=0.3)
    tie = np.array([[0.7 - 4e-7, 0.3 + 4e-7]])
    assert compare_scores(tie, theirs, ["row 1"], UNIT, threshold=0.3).n_rows == 1


def test_a_value_is_compared_in_the_deviation_of_the_target() -> None:
    ours, unit = np.array([1000.0, 1200.0]), (1000.0, 100.0)
    near = ours + np.array([0.9, 0.0]) * TOLERANCE * 100
    assert compare_scores(ours, near, NAMES[:2], unit).largest == pytest.approx(0.9 * TOLERANCE)
    with pytest.raises(ParityError):
        compare_scores(ours, ours + np.array([1.1, 0.0]) * TOLERANCE * 100, NAMES[:2], unit)
    # two deviations away, twice as much
    assert compare_scores(ours, ours + np.array([0.0, 1.9]) * TOLERANCE * 100, NAMES[:2], unit)


def test_values_far_from_zero_may_differ_by_the_rounding_of_64_bits() -> None:
    ours, unit = np.array([1e12, 1e12 + 3]), (1e12, 1.0)
    assert compare_scores(ours, np.nextafter(ours, 0), NAMES[:2], unit).largest == 0
    with pytest.raises(ParityError):
        compare_scores(ours, ours + 0.001, NAMES[:2], unit)


def test_another_number_of_scores_is_refused() -> None:
    with pytest.raises(ParityError, match=r"\(3, 1\) scores for 3 rows"):
        compare_scores(OURS, OURS[:, :1], NAMES, UNIT)


def test_odd_rows_are_missing_unknown_and_infinite_in_each_column(columns: TableColumns) -> None:
    odd = dict(odd_rows(columns, ROWS[1]))
    assert set(odd["a row without any value"].values()) == {None}
    for name in ("age", "level"):
        assert odd[f"a row with {name}=inf"] == {**ROWS[1], name: float("inf")}
        assert f"a row with {name}=-inf" in odd
    assert odd["a row with pet='a text of no training row'"]["age"] == ROWS[1]["age"]
