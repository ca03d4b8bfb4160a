"""Greedy selection of an ensemble."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from automl.config import Task
from automl.models.ensemble_selection import (
    FEW_ROWS,
    N_FLOOR,
    choose_sharpness,
    select_ensemble,
)

N_ROWS = 4 * FEW_ROWS


def noisy(y: np.ndarray, *scales: float) -> np.ndarray:
    draw = np.random.default_rng(0)
    return np.stack([y + scale * draw.standard_normal(len(y)) for scale in scales])


def test_models_whose_errors_differ_are_better_together_than_the_best_alone() -> None:
    y = np.random.default_rng(1).standard_normal(N_ROWS)
    said = noisy(y, 0.5, 0.5, 0.6, 30.0)
    chosen = select_ensemble(said, y, Task.regression)
    assert chosen.members[-1] == 2
    assert chosen.weights[3] == 0
    assert sum(chosen.weights) == pytest.approx(1)
    together = np.average(said, axis=0, weights=chosen.weights)
    assert chosen.loss == pytest.approx(np.square(together - y).mean())
    # Independent errors: the best weights go as 1 / variance.
    precision = np.array([1 / 0.25, 1 / 0.25, 1 / 0.36])
    assert chosen.weights[:3] == pytest.approx(precision / precision.sum(), abs=0.06)
    assert chosen.loss < 0.6 * 0.25


def test_a_model_that_is_added_twice_has_twice_the_weight() -> None:
    y = np.zeros(N_ROWS)
    said = np.stack([np.full(N_ROWS, 1.0), np.full(N_ROWS, -2.0)])
    assert select_ensemble(said, y, Task.regression).weights == pytest.approx((2 / 3, 1 / 3))


def test_the_probability_of_each_rows_class_counts() -> None:
    said = np.stack([np.tile([0.9, 0.2], N_ROWS // 2), np.tile([0.3, 0.8], N_ROWS // 2)])
    chosen = select_ensemble(said, np.empty(0), Task.classification)
    assert chosen.weights == pytest.approx((0.5, 0.5), abs=0.1)
    mean = np.average(said, axis=0, weights=chosen.weights)
    assert chosen.loss == pytest.approx(-np.log(mean).mean())


def test_a_certain_error_is_no_infinite_loss() -> None:
    said = np.stack([np.tile([0.0, 1.0], N_ROWS // 2), np.full(N_ROWS, 0.5)])
    assert np.isfinite(select_ensemble(said, np.empty(0), Task.classification).loss)


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
        errs.append(np.square(select_ensemble(said, y, Task.regression).weights).sum())
        by_heart.append(np.square(select_ensemble(*many, Task.regression).weights).sum())
    assert np.mean(errs) < 0.7 * np.mean(by_heart)


def test_the_plain_mean_of_the_best_five_is_taken_where_it_is_surely_better() -> None:
    n_plain = 0
    for said, y in few_alike(6, 15):
        chosen = select_ensemble(said, y, Task.regression)
        if sorted(chosen.weights) == [0.0, *[1 / N_FLOOR] * N_FLOOR]:
            n_plain += 1
            best = np.argsort(np.square(said - y).mean(axis=1))[:N_FLOOR]
            assert set(chosen.members) == set(best)
    assert 0 < n_plain < 20


def test_on_few_rows_too_one_that_is_far_better_than_all_others_stands_alone() -> None:
    y = np.random.default_rng(2).standard_normal(200)
    said = noisy(y, 0.1, *[3.0] * 20)
    assert select_ensemble(said, y, Task.regression).weights[0] > 0.9


def test_one_model_is_an_ensemble_and_none_is_not() -> None:
    assert select_ensemble(np.full((1, 9), 0.5), np.empty(0), Task.classification).weights == (1.0,)
    with pytest.raises(ValueError, match="no model"):
        select_ensemble(np.empty((0, 9)), np.empty(0), Task.classification)


def test_the_best_model_stands_alone_where_a_mean_of_models_is_surely_worse() -> None:
    """One model is right and many agree with each other by chance: on rows held back they add
    nothing."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(300)
    said = np.stack([y + 0.3 * rng.standard_normal(300), *(y + rng.standard_t(1.5, (40, 300)))])
    chosen = select_ensemble(said, y, Task.regression)
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
