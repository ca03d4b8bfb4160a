"""A metric that is the user's own function: how it is called, what it is told, and the thresholds
that follow from what it takes for a wrong label."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import fbeta_score, make_scorer, roc_auc_score

from automl.config import Task
from automl.data.scoring.label_thresholds import LabelThresholds
from automl.data.scoring.metrics import make_predictions
from automl.data.users_metric import MAX_TRIED_ROWS, UsersMetric
from automl.errors import ConfigError

LABELS = ("ill", "well")
Y = np.array([0] * 30 + [1] * 70)


def missed_costs_ten(y_true: Any, y_predicted: Any) -> float:
    wrong = y_true != y_predicted
    return float(np.where(y_true == "ill", 10 * wrong, wrong).mean())


def of_function(
    function: Callable[..., Any], classes: tuple[Any, ...] = LABELS, *, larger: bool = False
) -> UsersMetric:
    return UsersMetric("own", "study.metric=costs.py:own", larger, Load(function), classes)


class Load:
    """Returns a function; pickled by the function's name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self) -> Callable[..., Any]:
        return self.function


def test_a_function_is_given_the_tables_labels_or_probabilities() -> None:
    given: list[tuple[Any, Any]] = []

    def by_labels(y: Any, labels: Any) -> float:
        given.append((y, labels))
        return 0.5

    def by_shares(y: Any, probabilities: Any) -> float:
        given.append((y, probabilities))
        return np.float64(0.5)

    y, outputs = np.array([0, 1, 1]), np.array([[2.0, 0], [2, 0], [0, 2]])
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    for function, expected in ((by_labels, ["ill", "ill", "well"]), (by_shares, shares[:, 1])):
        metric = of_function(function)
        found = make_predictions(Task.classification, outputs, y, 0, 1, users_metric=metric)
        assert found.scored()["own"] == 0.5
        assert given[-1][0].tolist() == ["ill", "well", "well"]
        if isinstance(expected, list):
            assert given[-1][1].tolist() == expected
        else:
            np.testing.assert_allclose(given[-1][1], expected)
    three = of_function(by_shares, ("a", "b", "c"))
    make_predictions(Task.classification, np.zeros((3, 3)), y, 0, 1, users_metric=three).scored()
    assert given[-1][1].shape == (3, 3), "of more than two classes all"


def test_amounts_are_given_in_the_targets_unit() -> None:
    metric = of_function(lambda y, values: float(np.abs(y - values).max()), ())
    y, outputs = np.array([10.0, 20.0]), np.array([[0.0], [1.0]])
    found = make_predictions(Task.regression, outputs, y, 12.0, 5.0, users_metric=metric)
    assert found.scored()["own"] == 3.0


def test_samples_of_rows_are_scored_as_the_rows_themselves() -> None:
    draw = np.random.default_rng(0)
    outputs = draw.standard_normal((100, 2))
    counts = draw.multinomial(100, np.full(100, 0.01), size=5).astype(float)
    metric = of_function(missed_costs_ten)
    found = make_predictions(Task.classification, outputs, Y, 0, 1, users_metric=metric)
    own = found.scores(counts, ["own"])["own"]
    costs = np.where(outputs.argmax(axis=1) != Y, np.where(Y == 0, 10, 1), 0)
    np.testing.assert_allclose(own, counts @ costs / 100)


def test_thresholds_follow_from_what_a_wrong_label_costs() -> None:
    metric = of_function(missed_costs_ten)
    thresholds = metric.thresholds(Y)
    assert thresholds is not None
    # A row is ill where its probability is above 1/11.
    assert thresholds == pytest.approx(np.array([1, 10]) / 11)
    found = LabelThresholds.find(np.zeros((100, 2)), Y, "own", metric)
    assert found is not None
    assert found.best == pytest.approx(10 / 11)
    assert (found.held_out == found.best).all()
    larger = of_function(lambda y, p: -missed_costs_ten(y, p), larger=True)
    assert larger.thresholds(Y) == pytest.approx(thresholds)


def test_thresholds_of_three_classes_are_as_the_costs_of_missing_each() -> None:
    costs = np.array([[0, 1, 1], [1, 0, 1], [8, 8, 0]])
    metric = of_function(lambda y, p: float(costs[y, p].mean()), (0, 1, 2))
    found = metric.thresholds(np.arange(90) % 3)
    assert found == pytest.approx(np.array([8, 8, 1]) / 17)


@pytest.mark.parametrize(
    ("function", "classes"),
    [
        (lambda y, probabilities: 0.5, LABELS),
        (lambda y, p: float((p[y == "ill"] != "ill").mean()), LABELS),
        (lambda y, values: 0.5, ()),
    ],
)
def test_where_wrong_labels_of_a_class_cost_nothing_the_likeliest_class_is_said(
    function: Callable[..., Any], classes: tuple[str, ...]
) -> None:
    metric = of_function(function, classes)
    assert metric.thresholds(Y) is None
    assert LabelThresholds.find(np.zeros((100, 2)), Y, "own", metric) is None


def raising(y: Any, p: Any) -> float:
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, r"it raised KeyError: 'weights', called with y_true \(100,\), such as 'ill'"),
        (lambda y, p: y == p, r"it returned ndarray array\(\[.*A metric is one number"),
        (lambda y, p: "good", "it returned str 'good'"),
        (lambda y, p: None, "it returned None"),
        (lambda y, p: float("nan"), "it returned nan for 100 rows"),
        (lambda y: 1.0, r"it takes \(y\), and a metric is called as own\(y_true, y_predicted\)"),
        (lambda a, y, p: 1.0, r"it takes \(a, y, p\)"),
        (
            make_scorer(fbeta_score, beta=2),
            "it takes.*has its function as make_scorer's first argument",
        ),
    ],
)
def test_a_function_that_is_no_metric_is_refused_when_it_is_tried(
    function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s)^study.metric=costs.py:own: {message}"):
        of_function(function).try_on(Y)


def test_few_rows_are_tried_and_each_class_is_among_them() -> None:
    y = np.zeros(10_000, np.int64)
    y[7_001] = 1
    metric = of_function(lambda y, y_score: roc_auc_score(y == "well", y_score))
    metric.try_on(y)
    assert len(metric.places_to_try(y)) <= MAX_TRIED_ROWS + 2
    metric.try_on(y[:0])  # a final training has no rows that judge


def test_a_pickled_metric_loads_its_function_anew() -> None:
    metric = of_function(missed_costs_ten)
    metric.try_on(Y)
    metric.thresholds(Y)
    again = pickle.loads(pickle.dumps(metric))
    assert "function" not in vars(again)
    assert not again._thresholds
    assert again.score(Y, 1 - Y) == metric.score(Y, 1 - Y)
