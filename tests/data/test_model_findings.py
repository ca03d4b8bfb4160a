"""What predictions show: errors by class, and calibration."""

from __future__ import annotations

import numpy as np
import pytest

from automl.data.scoring.model_findings import calibration_curve, confusion_matrix


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
