"""Selects the models of a study's ensemble, and their weights, greedily with replacement
(Caruana et al., 2004, https://doi.org/10.1145/1015330.1015432).

Models are judged by their predictions for rows that none of them has seen. In each step, the model
is added with which the mean of all added models is best; a model that is added twice has twice the
weight. The best mean on the way is kept. `selection_costs.py` says what is best.

A selection can learn few rows by heart, the more easily the more trials there are. For few rows it
is therefore made on many samples of the rows, and the mean of all selections is taken. The plain
mean of the best five models is taken instead if it is better by more than two standard errors, on
rows held back. `experiments/013-tables/few_rows.md` has the measurements.

Shares of right labels and ranks say little of few rows: by error or AUC, models that are selected
by it are no better on new rows than those selected by the loss
(`experiments/013-tables/by_metric.md`). They are taken where they are better by the study's metric
by more than chance, on rows held back.

On rows held back, the ensemble is also compared with the best single model, which replaces it if it
is better by the study's metric by more than chance.

A mean of probabilities is less sure than its models are, and not more often right. A factor of the
class scores is therefore chosen, too (`experiments/013-tables/defaults.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from automl.data.dataset import Places, spread_places
from automl.models.selection_costs import Array, RowCosts, SelectionCosts

FEW_ROWS = 1_000
N_FLOOR = 5
"""Number of best models whose plain mean an ensemble chosen on few rows has to match."""
_N_SAMPLES = 20
"""Number of samples of few rows, with replacement; a selection is made on each."""
_N_PARTS = 5
"""Number of parts of few rows: an ensemble is made on all but one, and scored on that one."""
MAX_COMPARED_ROWS = 4_000
"""Number of rows, evenly spread, by which an ensemble is compared with its best model."""


Weighing: TypeAlias = Callable[[SelectionCosts, Places], Array]
"""Type of a function that returns the weights (M,) of an ensemble, by the rows of these places."""


@dataclass(frozen=True)
class WeightedSelection:
    """The weights of an ensemble's members, and its cost on the rows that it was selected by."""

    weights: tuple[float, ...]
    """The weight of each model, 0 for models outside the ensemble; they sum to 1."""
    cost: float
    """The cost of their mean by the smooth metric that they are selected by."""

    @property
    def members(self) -> tuple[int, ...]:
        """Return the places of the models in the ensemble, the heaviest first."""
        heaviest = sorted(range(len(self.weights)), key=lambda i: -self.weights[i])
        return tuple(i for i in heaviest if self.weights[i] > 0)


def select_ensemble(
    costs: RowCosts, metric_costs: SelectionCosts | None = None
) -> WeightedSelection:
    """Return an ensemble of the M models whose predictions `costs` has.

    `metric_costs` has the costs by a study's metric of labels or ranks, or by a function of the
    user's; None: `costs` are those of the study's metric. Raises ValueError where no model is.
    """
    if not costs.n_models:
        raise ValueError("an ensemble of no model")
    rows = np.arange(costs.n_rows)
    make: Weighing = _greedy
    if len(rows) < FEW_ROWS:
        make = _floor if _floor_is_better(costs) else _sampled
    weights = make(costs, rows)
    # A selection of the mean of many takes 20 times as long as a single one, which is no better.
    compared = _greedy if make is _sampled else make
    if metric_costs is not None:
        weights = _by_metric(costs, metric_costs, compared, weights)
    elif _is_better(costs, (costs, _best_alone), (costs, compared)):
        weights = _best_alone(costs, rows)
    return WeightedSelection(
        tuple(map(float, weights)), float(costs.of_means(costs.mean(weights, rows)[None], rows)[0])
    )


def _by_metric(
    costs: RowCosts, metric_costs: SelectionCosts, make: Weighing, weights: Array
) -> Array:
    """Return the weights (M,) by a metric that is no mean over rows: those by the loss, unless
    those of a selection by the metric, or of the best model, are better on rows held back."""
    every = np.arange(metric_costs.n_rows)
    taken: tuple[SelectionCosts, Weighing] = (costs.spread(metric_costs.n_rows), make)
    for other in (_greedy, _best_alone):
        if _is_better(metric_costs, (metric_costs, other), taken):
            weights, taken = other(metric_costs, every), (metric_costs, other)
    return weights


def standard_errors_lost(before: RowCosts, after: RowCosts) -> float:
    """Return by how much the mean cost rises from the predictions of one model to those of
    another, in standard errors of the mean cost."""
    costs, others = (each.of_rows(each.predictions)[0] for each in (before, after))
    rise, scale = float((others - costs).mean()), float(costs.std() / np.sqrt(len(costs)))
    return rise / scale if scale > 0 else float(np.sign(rise)) * np.inf


def _greedy(costs: SelectionCosts, rows: Places) -> Array:
    """Return the (M,) weights of a greedy selection."""
    predictions = costs.predictions[:, rows]
    ranked = np.argsort(costs.of_means(predictions, rows), kind="stable")
    candidates = ranked[: costs.max_candidates]
    counts, kept = np.zeros(costs.n_models), np.zeros(costs.n_models)
    total, best = np.zeros(predictions.shape[1:]), np.inf
    for n_added in range(1, costs.max_added + 1):
        found = costs.of_means((total + predictions[candidates]) / n_added, rows)
        added = candidates[found.argmin()]
        counts[added] += 1
        total += predictions[added]
        if found.min() < best or n_added == 1:
            best, kept = found.min(), counts / n_added
    return kept


def _sampled(costs: SelectionCosts, rows: Places) -> Array:
    """Return (M,) weights: the mean of greedy selections on samples of the rows."""
    rng = np.random.default_rng(0)
    drawn = (rng.integers(0, len(rows), len(rows)) for _ in range(_N_SAMPLES))
    return np.asarray(np.mean([_greedy(costs, rows[each]) for each in drawn], axis=0))


def _floor(costs: SelectionCosts, rows: Places) -> Array:
    """Return (M,) weights that are equal for the best five models."""
    weights = np.zeros(costs.n_models)
    found = costs.of_means(costs.predictions[:, rows], rows)
    best = np.argsort(found, kind="stable")[:N_FLOOR]
    weights[best] = 1 / len(best)
    return weights


def _best_alone(costs: SelectionCosts, rows: Places) -> Array:
    """Return (M,) weights that are 1 for the best model."""
    weights = np.zeros(costs.n_models)
    weights[costs.of_means(costs.predictions[:, rows], rows).argmin()] = 1.0
    return weights


def _is_better(
    judge: SelectionCosts,
    one: tuple[SelectionCosts, Weighing],
    other: tuple[SelectionCosts, Weighing],
) -> bool:
    """Return whether one way of weighing models is better than another by more than chance.

    Both choose on some rows and are compared on the others, by a paired bootstrap of the rows.
    `judge` has the costs that they are compared by; each way has those that it goes by.
    """
    if judge.n_rows < 2 or judge.n_models < 2:
        return False
    rows = spread_places(judge.n_rows, MAX_COMPARED_ROWS)
    first, second = (_predict_held_back(judge, way, rows) for way in (one, other))
    if judge.of_means(first[None], rows)[0] >= judge.of_means(second[None], rows)[0]:
        return False
    rng, n = np.random.default_rng(0), len(rows)
    drawn = [np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(judge.n_bootstraps)]
    counts = np.array(drawn, dtype=np.float64)
    costs = [judge.resampled(each, rows, counts) for each in (first, second)]
    known = np.isfinite(costs).all(axis=0)
    return bool(known.any() and np.quantile((costs[1] - costs[0])[known], 0.025) > 0)


def _floor_is_better(costs: RowCosts) -> bool:
    """Return whether the plain mean of the best is better than a greedy selection.

    It must be better by more than two standard errors, on rows that neither was made by. A single
    selection is tried, because it takes a twentieth of the time of all.
    """
    if costs.n_rows < 2:
        return True
    rows = np.arange(costs.n_rows)
    floor, greedy = (_predict_held_back(costs, (costs, make), rows) for make in (_floor, _greedy))
    gain = costs.of_rows(greedy[None])[0] - costs.of_rows(floor[None])[0]
    return bool(gain.mean() > 2 * gain.std() / np.sqrt(len(rows)))


def _predict_held_back(
    judge: SelectionCosts, way: tuple[SelectionCosts, Weighing], rows: Places
) -> Array:
    """Return predictions (R, …) for the rows: for each part of them by an ensemble made on the
    others. The predictions are those of `judge`."""
    costs, make = way
    parts = np.random.default_rng(0).permutation(len(rows)) % _N_PARTS
    held_back = np.empty((len(rows), *judge.predictions.shape[2:]))
    for out in (parts == part for part in range(min(_N_PARTS, len(rows)))):
        held_back[out] = judge.mean(make(costs, rows[~out]), rows[out])
    return held_back
