"""Metrics are those of scikit-learn, of weighted rows too; intervals hold what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

import automl.data.scoring.evaluation
from automl.config import Task
from automl.config.metrics import METRICS_OF_TASK
from automl.data.scoring.evaluation import (
    bootstrap_difference,
    bootstrap_interval,
    bootstrap_metrics,
)
from automl.data.scoring.metrics import (
    ClassPredictions,
    Floats,
    JudgedPredictions,
    ValuePredictions,
    make_predictions,
)
from automl.errors import AutoMLError

RNG = np.random.default_rng(3)


def of_classes(n_classes: int, n_rows: int = 200) -> tuple[Floats, np.ndarray]:
    """Outputs with ties, and targets that they half know."""
    y = RNG.integers(0, n_classes, n_rows)
    outputs = np.round(8 * RNG.normal(size=(n_rows, n_classes))) / 8 + 1.5 * np.eye(n_classes)[y]
    return outputs, y


def of_values(n_rows: int = 200) -> tuple[Floats, np.ndarray]:
    y = RNG.normal(1e4, 30, n_rows).astype(np.float64)
    return y + RNG.normal(0, 10, n_rows), y


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_metrics_of_classes(n_classes: int) -> None:
    outputs, y = of_classes(n_classes)
    found = ClassPredictions(outputs + 512, y).scored()  # a constant tells nothing
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    labels = outputs.argmax(1)
    expected = {
        "loss": metrics.log_loss(y, shares),
        "error": 1 - metrics.accuracy_score(y, labels),
        "accuracy": metrics.accuracy_score(y, labels),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, labels),
        "f1": metrics.f1_score(y, labels, average="macro"),
    }
    if n_classes == 2:
        said = outputs[:, 1] - outputs[:, 0]
        expected["auc"] = metrics.roc_auc_score(y, said)
        expected["average_precision"] = metrics.average_precision_score(y, said)
        expected["brier"] = metrics.brier_score_loss(y, shares[:, 1])
    else:
        each = [(y == c, log_shares(outputs + 512)[:, c]) for c in range(n_classes)]
        expected["auc"] = np.mean([metrics.roc_auc_score(*of) for of in each])
        precisions = [metrics.average_precision_score(*of) for of in each]
        expected["average_precision"] = np.mean(precisions)
        expected["brier"] = metrics.brier_score_loss(y, shares)
    assert found == pytest.approx(expected)
    assert tuple(found) == METRICS_OF_TASK[Task.classification]


def test_metrics_of_values() -> None:
    values, y = of_values()
    found = ValuePredictions(values, y, scale=30.0).scored()
    assert found == pytest.approx(
        {
            "loss": metrics.mean_squared_error(y, values) / 900,
            "rmse": metrics.root_mean_squared_error(y, values),
            "mae": metrics.mean_absolute_error(y, values),
            "r2": metrics.r2_score(y, values),
            "mape": metrics.mean_absolute_percentage_error(y, values),
            "rmsle": metrics.root_mean_squared_log_error(y, values.clip(0)),
        },
        rel=1e-4,
    )
    assert tuple(found) == METRICS_OF_TASK[Task.regression]


def test_targets_from_0_on_have_the_error_of_their_logarithms() -> None:
    values, y = np.array([-1.0, 3.0, 8.0]), np.array([0.0, 2.0, 10.0])
    expected = metrics.root_mean_squared_log_error(y, values.clip(0))
    assert ValuePredictions(values, y, 1.0).scored()["rmsle"] == pytest.approx(expected)
    assert "rmsle" not in ValuePredictions(values, y - 1, 1.0).scored()


def test_a_target_of_zero_has_no_share_to_be_missed_by() -> None:
    found = ValuePredictions(np.array([1.0, 3.0]), np.array([0, 2], np.float64), 1.0)
    assert found.scored()["mape"] == 0.5
    only = ValuePredictions(np.array([1.0, 3.0]), np.zeros(2, np.float64), 1.0)
    assert math.isnan(only.scored()["mape"])


@pytest.mark.parametrize("task", METRICS_OF_TASK)
def test_one_metric_is_what_it_is_among_all(task: Task) -> None:
    outputs, y = of_classes(3) if task is Task.classification else of_values()
    found = ClassPredictions(outputs, y) if task is Task.classification else values_of(outputs, y)
    every = found.scored()
    assert {name: found.scored([name])[name] for name in every} == every


def values_of(outputs: Floats, y: np.ndarray) -> ValuePredictions:
    return ValuePredictions(outputs, y, 30.0)


def test_a_class_without_rows_has_no_ranks() -> None:
    outputs, y = of_classes(3)
    some = y != 2
    found = ClassPredictions(outputs[some], y[some]).scored()
    said = log_shares(outputs[some])
    each = [metrics.roc_auc_score(y[some] == c, said[:, c]) for c in (0, 1)]
    assert found["auc"] == pytest.approx(np.mean(each))
    assert math.isfinite(found["average_precision"])


def log_shares(outputs: Floats) -> Floats:
    """With the roundings of ours, which break ties."""
    top = outputs.max(axis=1, keepdims=True)
    logs: Floats = outputs - top - np.log(np.exp(outputs - top).sum(axis=1, keepdims=True))
    return logs


@pytest.mark.parametrize("n_classes", [2, 5, 0])
def test_a_weight_is_how_often_a_row_counts(n_classes: int) -> None:
    def predictions_at(places: np.ndarray) -> JudgedPredictions:
        if n_classes:
            return ClassPredictions(outputs[places], y[places])
        return ValuePredictions(outputs[places], y[places], 2.0)

    outputs, y = of_classes(n_classes, 40) if n_classes else of_values(40)
    weights = RNG.integers(0, 4, (3, 40))
    found = predictions_at(np.arange(40)).scores(weights.astype(np.float64))
    for place, counts in enumerate(weights):
        repeated = predictions_at(np.repeat(np.arange(40), counts)).scored()
        assert {name: values[place] for name, values in found.items()} == pytest.approx(repeated)


def test_a_class_that_a_sample_lacks_is_not_counted() -> None:
    found = ClassPredictions(np.array([[5.0, 0, 0], [0, 5, 0], [0, 5, 0]]), np.array([0, 1, 0]))
    assert found.scored()["f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found.scores(np.array([[1.0, 0, 0]]))["f1"][0] == 1


def test_rows_of_one_class_have_no_auc() -> None:
    found = ClassPredictions(np.zeros((4, 2)), np.zeros(4, np.int64)).scored()
    assert math.isnan(found["auc"])
    assert math.isnan(found["average_precision"])
    assert found["error"] == 0


def test_what_is_no_number_has_no_score() -> None:
    outputs = np.array([[0.0, 1.0], [np.nan, 0.0], [np.inf, 0.0]])
    with pytest.raises(AutoMLError, match="no finite number for 2 of 3 rows"):
        make_predictions(Task.classification, outputs, np.zeros(3, np.int64), 0.0, 1.0)


# --- intervals ------------------------------------------------------------------------------------


def values(errors: Floats) -> ValuePredictions:
    return ValuePredictions(errors, np.zeros(len(errors), np.float64), 1.0)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = 0
    for seed in range(300):
        rows = np.random.default_rng(seed).normal(size=80)
        sample = values(rows)
        found = bootstrap_interval(
            sample.scored()["mae"], bootstrap_metrics({"a": sample}, 300, seed)["a"]["mae"]
        )
        held += found.low <= math.sqrt(2 / math.pi) <= found.high
    assert 0.91 <= held / 300 <= 0.97


def test_samples_are_the_same_for_all_and_in_each_call() -> None:
    errors = RNG.normal(size=50)
    first = bootstrap_metrics({"a": values(errors), "b": values(2 * errors)}, 200, 5)
    np.testing.assert_allclose(first["b"]["mae"], 2 * first["a"]["mae"])
    again = bootstrap_metrics({"a": values(errors)}, 200, 5)
    np.testing.assert_array_equal(first["a"]["loss"], again["a"]["loss"])
    other = bootstrap_metrics({"a": values(errors)}, 200, 6)
    assert (first["a"]["loss"] != other["a"]["loss"]).any()


def test_many_rows_are_sampled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = np.arange(100.0)
    whole = bootstrap_metrics({"a": values(errors)}, 700, 0)["a"]["mae"]
    monkeypatch.setattr(automl.data.scoring.evaluation, "_CELLS_AT_ONCE", 900)
    pieces = bootstrap_metrics({"a": values(errors)}, 700, 0)["a"]["mae"]
    assert pieces.shape == (700,)
    assert len(np.unique(pieces)) > 300, "each piece is drawn anew"
    assert pieces.mean() == pytest.approx(whole.mean(), abs=0.5)
    assert pieces.std() == pytest.approx(errors.std() / 10, rel=0.15)


def compare(a: Floats, b: Floats, n_compared: int = 1) -> tuple[str, float]:
    """The verdict on b against a by `mae`, and the width of the difference's interval."""
    both = {"a": values(a), "b": values(b)}
    samples = bootstrap_metrics(both, 1000, 0)
    found = bootstrap_difference(
        "mae",
        both["b"].scored()["mae"] - both["a"].scored()["mae"],
        samples["b"]["mae"] - samples["a"]["mae"],
        n_compared,
    )
    return found.verdict, found.high - found.low


def test_a_small_difference_on_the_same_rows_is_more_than_chance() -> None:
    rows = RNG.normal(size=400)
    worse = rows * 1.02 + 0.01 * np.sign(rows)
    alone = bootstrap_interval(0.0, bootstrap_metrics({"a": values(rows)}, 1000, 0)["a"]["mae"])
    verdict, width = compare(rows, worse)
    assert verdict == "worse"
    assert width < (alone.high - alone.low) / 10
    assert compare(worse, rows)[0] == "better"


def test_what_is_chance_is_called_so() -> None:
    a, b = RNG.normal(size=(2, 400))
    assert compare(a, b)[0] == "may be chance"
    assert compare(a, a) == ("may be chance", 0)


def test_of_some_metrics_large_values_are_good() -> None:
    above = np.linspace(0.1, 0.2, 100)
    assert bootstrap_difference("auc", 0.15, above).verdict == "better"
    assert bootstrap_difference("error", 0.15, above).verdict == "worse"
    assert bootstrap_difference("r2", -0.15, -above).verdict == "worse"


def test_several_that_are_compared_need_wider_intervals() -> None:
    a = RNG.normal(size=400)
    b = a + RNG.normal(size=400)
    assert compare(a, b, n_compared=10)[1] > 1.2 * compare(a, b)[1]


def test_what_no_sample_tells_has_no_interval() -> None:
    found = bootstrap_difference("auc", math.nan, np.full(9, math.nan))
    assert math.isnan(found.low)
    assert found.verdict == "may be chance"
