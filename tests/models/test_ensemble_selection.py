"""Greedy selection of an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from automl.data.users_metric import UsersMetric
from automl.models.ensemble_selection import (
    FEW_ROWS,
    N_FLOOR,
    select_ensemble,
)
from automl.models.selection_costs import (
    LabelCosts,
    UsersMetricCosts,
    choose_sharpness,
    class_costs,
    value_costs,
)

N_ROWS = 4 * FEW_ROWS


def noisy(y: np.ndarray, *scales: float) -> np.ndarray:
    draw = np.random.default_rng(0)
    return np.stack([y + scale * draw.standard_normal(len(y)) for scale in scales])


def test_models_whose_errors_differ_are_better_together_than_the_best_alone() -> None:
    y = np.random.default_rng(1).standard_normal(N_ROWS)
    said = noisy(y, 0.5, 0.5, 0.6, 30.0)
    chosen = select_ensemble(value_costs(said, y))
    assert chosen.members[-1] == 2
    assert chosen.weights[3] == 0
    assert sum(chosen.weights) == pytest.approx(1)
    together = np.average(said, axis=0, weights=chosen.weights)
    assert chosen.cost == pytest.approx(np.square(together - y).mean())
    # Independent errors: the best weights go as 1 / variance.
    precision = np.array([1 / 0.25, 1 / 0.25, 1 / 0.36])
    assert chosen.weights[:3] == pytest.approx(precision / precision.sum(), abs=0.06)
    assert chosen.cost < 0.6 * 0.25


def test_a_model_that_is_added_twice_has_twice_the_weight() -> None:
    y = np.zeros(N_ROWS)
    said = np.stack([np.full(N_ROWS, 1.0), np.full(N_ROWS, -2.0)])
    assert select_ensemble(value_costs(said, y)).weights == pytest.approx((2 / 3, 1 / 3))


def test_the_probability_of_each_rows_class_counts() -> None:
    said = np.stack([np.tile([0.9, 0.2], N_ROWS // 2), np.tile([0.3, 0.8], N_ROWS // 2)])
    chosen = select_ensemble(class_costs(said))
    assert chosen.weights == pytest.approx((0.5, 0.5), abs=0.1)
    mean = np.average(said, axis=0, weights=chosen.weights)
    assert chosen.cost == pytest.approx(-np.log(mean).mean())


def test_a_certain_error_is_no_infinite_loss() -> None:
    said = np.stack([np.tile([0.0, 1.0], N_ROWS // 2), np.full(N_ROWS, 0.5)])
    assert np.isfinite(select_ensemble(class_costs(said)).cost)


def few_alike(n_models: int, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows, and what models say of them that are all alike: what looks better is chance."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        y = draw.standard_normal(n_rows)
        yield y + draw.standard_normal((n_models, n_rows)), y


def test_few_rows_are_not_learned_by_heart() -> None:
    """Of models that err alike and apart the mean errs on new rows as the sum of the squares of
    its weights."""
    errs, by_heart = [], []
    for said, y in few_alike(100, 60):
        many = np.tile(said, 20), np.tile(y, 20)  # the same rows, of which none is new
        errs.append(np.square(select_ensemble(value_costs(said, y)).weights).sum())
        by_heart.append(np.square(select_ensemble(value_costs(*many)).weights).sum())
    assert np.mean(errs) < 0.7 * np.mean(by_heart)


def test_the_plain_mean_of_the_best_five_is_taken_where_it_is_surely_better() -> None:
    n_plain = 0
    for said, y in few_alike(6, 15):
        chosen = select_ensemble(value_costs(said, y))
        if sorted(chosen.weights) == [0.0, *[1 / N_FLOOR] * N_FLOOR]:
            n_plain += 1
            best = np.argsort(np.square(said - y).mean(axis=1))[:N_FLOOR]
            assert set(chosen.members) == set(best)
    assert 0 < n_plain < 20


def test_on_few_rows_too_one_that_is_far_better_than_all_others_stands_alone() -> None:
    y = np.random.default_rng(2).standard_normal(200)
    said = noisy(y, 0.1, *[3.0] * 20)
    assert select_ensemble(value_costs(said, y)).weights[0] > 0.9


def test_one_model_is_an_ensemble_and_none_is_not() -> None:
    assert select_ensemble(class_costs(np.full((1, 9), 0.5))).weights == (1.0,)
    with pytest.raises(ValueError, match="no model"):
        select_ensemble(class_costs(np.empty((0, 9))))


def test_the_best_model_stands_alone_where_a_mean_of_models_is_surely_worse() -> None:
    """One model is right and many agree with each other by chance: on rows held back they add
    nothing."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(300)
    said = np.stack([y + 0.3 * rng.standard_normal(300), *(y + rng.standard_t(1.5, (40, 300)))])
    chosen = select_ensemble(value_costs(said, y))
    assert chosen.weights[0] == 1.0


def class_scores(n_rows: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N, 3), and classes drawn by the softmax of `scale` times these."""
    draw = np.random.default_rng(0)
    scores = 2 * draw.standard_normal((n_rows, 3))
    noise = draw.gumbel(size=scores.shape)
    return scores, (scale * scores + noise).argmax(axis=1)


@pytest.mark.parametrize(("scale", "least", "most"), [(2.0, 1.7, 2.3), (0.6, 0.5, 0.7)])
def test_scores_that_are_not_sure_enough_or_too_sure_get_a_factor(
    scale: float, least: float, most: float
) -> None:
    assert least < choose_sharpness(*class_scores(N_ROWS, scale)) < most


@pytest.mark.parametrize("n_rows", [60, N_ROWS])
def test_scores_that_are_right_stay(n_rows: int) -> None:
    assert choose_sharpness(*class_scores(n_rows, 1.0)) == 1.0


def test_few_rows_that_are_all_right_make_no_model_certain() -> None:
    y = np.arange(60) % 2
    scores = np.where(y[:, None] == np.arange(2), 2.0, 0.0)
    assert choose_sharpness(scores, y) == pytest.approx(np.log(60) / 2, rel=0.1)
    scores[::6] *= -1
    assert choose_sharpness(scores, y) <= 1.0


def by_labels(
    said: np.ndarray, y: np.ndarray, metric: str = "error", threshold: float | None = None
) -> tuple[float, ...]:
    """Weights by a metric of labels, of models that give the second class these probabilities."""
    own = np.where(y == 1, said, 1 - said)
    shares = np.stack([1 - said, said], axis=2)
    costs = LabelCosts(shares, y, metric, threshold)
    return select_ensemble(class_costs(own), costs).weights


def test_by_error_a_model_that_is_right_but_unsure_stands_for_the_ensemble() -> None:
    """By the loss the sure model is the better one, which is wrong twice as often."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, N_ROWS)
    right, often = draw.random(N_ROWS) > 0.05, draw.random(N_ROWS) > 0.1
    unsure = np.where((y == 1) == right, 0.52, 0.48)
    sure = np.where((y == 1) == often, 0.9, 0.1)
    said = np.stack([sure, unsure])
    own = np.where(y == 1, said, 1 - said)
    assert select_ensemble(class_costs(own)).weights[0] > 0.9
    assert by_labels(said, y)[1] > 0.9


def test_by_error_models_that_differ_by_chance_are_joined_as_by_the_loss() -> None:
    n_same = 0
    for seed in range(4):
        draw = np.random.default_rng(seed)
        true = draw.random(2 * FEW_ROWS)
        y = (draw.random(len(true)) < true).astype(np.int64)
        odds = np.log(true / (1 - true)) + draw.standard_normal((8, len(true)))
        said = 1 / (1 + np.exp(-odds))
        own = np.where(y == 1, said, 1 - said)
        n_same += by_labels(said, y) == select_ensemble(class_costs(own)).weights
    assert n_same >= 3


@pytest.mark.parametrize("metric", ["auc", "average_precision"])
def test_a_metric_of_ranks_takes_the_model_that_ranks_best(metric: str) -> None:
    """The probabilities of one model are in the right order, and far too small."""
    draw = np.random.default_rng(2)
    y = draw.integers(0, 2, N_ROWS)
    odds = np.stack([y - 0.5, 4 * y - 2]) + draw.standard_normal((2, N_ROWS))
    true_odds, in_order = 1 / (1 + np.exp(-odds))
    said = np.stack([true_odds, in_order / 1_000])
    own = np.where(y == 1, said, 1 - said)
    assert select_ensemble(class_costs(own)).weights[0] > 0.9
    assert by_labels(said, y, metric)[1] > 0.9


@pytest.mark.parametrize("metric", ["f1", "balanced_accuracy"])
def test_a_metric_of_labels_goes_by_the_threshold(metric: str) -> None:
    draw = np.random.default_rng(2)
    y = (draw.random(N_ROWS) < 0.1).astype(np.int64)
    worse = (0.1 + 0.05 * y + 0.05 * draw.standard_normal(N_ROWS)).clip(0.01, 0.99)
    better = (0.01 + 0.03 * y + 0.005 * draw.standard_normal(N_ROWS)).clip(1e-3, 0.99)
    assert by_labels(np.stack([worse, better]), y, metric, 0.025)[1] > 0.9


def test_a_metric_of_numbers_selects_by_itself() -> None:
    y = np.full(N_ROWS, 10.0)
    draw = np.random.default_rng(3)
    outliers = np.where(np.arange(N_ROWS) % 10 == 0, 40.0, 0.0)
    said = np.stack([y + outliers, y + 6 + 0.1 * draw.standard_normal(N_ROWS)])
    assert select_ensemble(value_costs(said, y)).weights[1] > 0.5
    assert select_ensemble(value_costs(said, y, metric="mae")).weights[0] > 0.9
    assert select_ensemble(value_costs(said, y, metric="mape")).weights[0] > 0.9


def by_function(
    said: np.ndarray, y: np.ndarray, function: Callable[..., float], thresholds: float | None = None
) -> tuple[float, ...]:
    """Weights by a function of the user's, of models that give the second class these
    probabilities."""
    own = UsersMetric("own", "study.metric", larger_is_better=False, load=lambda: function)
    own = own.of_classes((0, 1))
    costs = UsersMetricCosts(np.stack([1 - said, said], axis=2), y, own, thresholds)
    return select_ensemble(class_costs(np.where(y == 1, said, 1 - said)), costs).weights


def test_by_a_function_the_model_that_costs_least_stands_for_the_ensemble() -> None:
    """By the loss the other model is the better one, which misses far more rows at the threshold
    that the costs want."""
    draw = np.random.default_rng(0)
    y = (draw.random(N_ROWS) < 0.3).astype(np.int64)
    found = np.where(y == 1, draw.random(N_ROWS) < 0.99, draw.random(N_ROWS) < 0.3)
    careful = np.where(found, 0.3, 0.02)
    sharp = np.where((y == 1) == (draw.random(N_ROWS) > 0.08), 0.92, 0.05)
    said = np.stack([sharp, careful])

    def cost(y: np.ndarray, labels: np.ndarray) -> float:
        return float(np.where(y > labels, 10, y < labels).mean())

    assert select_ensemble(class_costs(np.where(y == 1, said, 1 - said))).weights[0] > 0.7
    assert by_function(said, y, cost, 1 / 11)[1] > 0.9


def test_by_a_function_models_that_are_alike_are_joined_as_by_the_loss() -> None:
    draw = np.random.default_rng(1)
    true = draw.random(N_ROWS)
    y = (draw.random(N_ROWS) < true).astype(np.int64)
    odds = np.log(true / (1 - true)) + draw.standard_normal((5, N_ROWS))
    said = 1 / (1 + np.exp(-odds))
    by_loss = select_ensemble(class_costs(np.where(y == 1, said, 1 - said))).weights
    assert by_function(said, y, lambda y, labels: float((y != labels).mean())) == by_loss


def test_amounts_are_selected_by_a_function() -> None:
    draw = np.random.default_rng(2)
    y = draw.standard_normal(N_ROWS)
    own = UsersMetric(
        "own", "study.metric", False, lambda: lambda y, said: float((np.abs(y - said) > 1).mean())
    )
    outliers = np.where(np.arange(N_ROWS) % 10 == 0, 9.0, 0.0)
    said = np.stack([y + 1.2, y + outliers])
    assert select_ensemble(value_costs(said, y)).weights[0] > 0.5
    assert select_ensemble(value_costs(said, y), UsersMetricCosts(said, y, own)).weights[1] > 0.9
