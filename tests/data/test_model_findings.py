"""What predictions show: errors by class, and calibration."""

from __future__ import annotations

import numpy as np
import pytest

from automl.data.scoring.model_findings import (
    calibration_curve,
    confusion_matrix,
    n_rows_in_time,
    repeats_in_time,
)


def test_rows_of_each_class_are_counted_by_what_they_are_taken_for() -> None:
    y, taken = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 1, 1, 0, 2])
    found = confusion_matrix(taken, y, ("a", "b", "c"), n_most=3)
    assert found.names == ("a", "b", "c")
    assert found.n_rows.tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 1]]
    np.testing.assert_allclose(found.shares.sum(axis=1), 1)


def test_the_rarest_of_many_classes_are_one() -> None:
    y, taken = np.array([0, 1, 1, 2, 2, 3]), np.array([1, 1, 3, 2, 0, 0])
    found = confusion_matrix(taken, y, (7, 8, 9, 10), n_most=2)
    assert found.names == ("8", "9", "others")
    assert found.n_rows.tolist() == [[1, 0, 1], [0, 1, 1], [1, 0, 1]]


def test_a_class_without_rows_has_no_share() -> None:
    found = confusion_matrix(np.array([1]), np.array([0]), ("a", "b"), n_most=2)
    assert found.shares.tolist() == [[0, 1], [0, 0]]


def test_of_two_classes_the_second_is_looked_at() -> None:
    second = np.array([0.05, 0.05, 0.95, 1.0])
    found = calibration_curve(np.stack([1 - second, second], axis=1), np.array([0, 1, 1, 1]))
    assert found.predicted == pytest.approx([0.05, 0.975])
    assert found.observed.tolist() == [0.5, 1]
    assert found.n_rows.tolist() == [2, 2]


def test_of_more_classes_each_is_looked_at() -> None:
    shares = np.array([[0.62, 0.33, 0.05], [0.05, 0.62, 0.33]])
    found = calibration_curve(shares, np.array([0, 0]))
    assert found.predicted == pytest.approx([0.05, 0.33, 0.62])
    assert found.observed == pytest.approx([0.5, 0, 0.5])
    assert found.n_rows.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 2), (40.0, 4), (49.0, 4), (50.0, 5), (1e9, 5)]
)
def test_columns_are_shuffled_again_while_the_time_lasts(seconds: float, expected: int) -> None:
    done: list[int] = []

    def now() -> float:
        return 10.0 * len(done)  # each repeat takes ten seconds

    for repeat in repeats_in_time(5, seconds, now):
        done += [repeat]
    assert done == [*range(expected)]


@pytest.mark.parametrize(
    ("n_rows", "repeat_seconds", "expected"),
    [(2_000, 1.0, 2_000), (2_000, 20.0, 1_000), (2_000, 1e9, 500), (300, 1e9, 300), (9, 0.0, 9)],
)
def test_a_slow_model_is_asked_about_fewer_rows(
    n_rows: int, repeat_seconds: float, expected: int
) -> None:
    assert n_rows_in_time(n_rows, repeat_seconds, seconds=20.0) == expected
