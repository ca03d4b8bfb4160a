"""Says how much each param matters over the space, with an interval. Pure.

A forest learns the trials' values. A param's importance is its total effect (Sobol,
by Jansen's estimator, 1999) on what the forest predicts for params drawn evenly from the space: the
part of the variance that is left when all others are known. So it does not depend on where the
sampler drew: a param that the sampler has fixed early counts by the few trials elsewhere. A param
that only some trials have is judged among those.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automl.search.value_forest import Floats, ValueForest
from automl.trial import Params, ParamValue

MIN_TRIALS = 20
"""Fewer trials say nothing of a param."""
MAX_TRIALS = 300
"""If there are more trials, a random part of them is used: 300 trials of 10 params take 0.5 s."""
MIN_FIT = 0.15
"""A forest whose R² on trials left out is below this says nothing of single params."""
_MAX_SPREADS = 10.0
N_DRAWN = 400
"""Number of params that are drawn from the space."""


@dataclass(frozen=True)
class ParamImportance:
    """How much a param matters among the params that all trials have."""

    name: str
    share: float
    """Its part of the effects of all params, from 0 to 1."""
    low: float
    high: float
    """The share in resamples of the trials: the 10th and the 90th percentile."""
    is_conditional: bool = False
    """Whether only some trials have the param; its share then counts among those."""


@dataclass(frozen=True)
class NumberScale:
    """The range of a param that is a number."""

    low: float
    high: float
    is_log: bool

    def share(self, value: ParamValue) -> float:
        """Return the place of a value on the range, from 0 to 1."""
        assert isinstance(value, int | float)
        low, high, number = self.low, self.high, float(value)
        if self.is_log:
            low, high, number = math.log(low), math.log(high), math.log(number)
        return (number - low) / (high - low) if high > low else 0.5


Scale = NumberScale | tuple[ParamValue, ...]
"""The range of a number, or the categories of a param."""


def param_importances(
    trials: Sequence[tuple[Params, float]], scales: Mapping[str, Scale], *, seed: int = 0
) -> list[ParamImportance]:
    """Return the importances of the params in `scales`, the largest first.

    `trials`: the params and the finite value of each trial. Empty if the trials do not tell.
    """
    random = np.random.default_rng(seed)
    if len(trials) > MAX_TRIALS:
        trials = [trials[i] for i in random.permutation(len(trials))[:MAX_TRIALS]]
    holders: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in scales:
        own = tuple(i for i, (params, _) in enumerate(trials) if name in params)
        holders[own].append(name)
    found = []
    for own, judged in holders.items():
        among = [trials[i] for i in own]
        names = [n for n in scales if all(n in params for params, _ in among)]
        of_names = {name: scales[name] for name in names}
        is_part = len(own) < len(trials)
        shares = _shares(among, of_names, random)
        found += [
            ParamImportance(name, *shares[name], is_conditional=is_part)
            for name in judged
            if name in shares
        ]
    return sorted(found, key=lambda importance: importance.share, reverse=True)


def _shares(
    trials: Sequence[tuple[Params, float]],
    scales: Mapping[str, Scale],
    random: np.random.Generator,
) -> dict[str, tuple[float, float, float]]:
    """Return the share of each param, and its ends in resamples; empty if nothing is learned."""
    if len(trials) < MIN_TRIALS or len(scales) < 2:
        return {}
    values = _without_outliers(np.array([value for _, value in trials]))
    rows = np.array(
        [[_code(params[n], scale) for n, scale in scales.items()] for params, _ in trials]
    )
    n_categories = [len(s) if isinstance(s, tuple) else 0 for s in scales.values()]
    forest = ValueForest(rows, values, n_categories, seed=int(random.integers(2**31)))
    if forest.fit < MIN_FIT:
        return {}
    effects = _total_effects(forest, n_categories, random)
    sums = effects.sum(axis=1, keepdims=True)
    parts = effects / np.where(sums > 0, sums, 1.0)
    mean = parts.mean(axis=0)
    low, high = np.quantile(parts, [0.1, 0.9], axis=0)
    ends = zip(mean, np.minimum(low, mean), np.maximum(high, mean), strict=True)
    return {
        name: (float(share), float(lowest), float(highest))
        for name, (share, lowest, highest) in zip(scales, ends, strict=True)
    }


def _without_outliers(values: Floats) -> Floats:
    """Return the values, those far from the middle moved nearer: a single loss of 1e6 would be all
    that the forest learns. `_MAX_SPREADS` keep a tenth of the trials that are far worse apart."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    quarters = np.quantile(values, [0.25, 0.75])
    spread = float(max(quarters[1] - quarters[0], min(middle - low, high - middle)))
    if spread <= 0:
        return values
    near: Floats = np.clip(values, middle - _MAX_SPREADS * spread, middle + _MAX_SPREADS * spread)
    return near


def _total_effects(
    forest: ValueForest, n_categories: Sequence[int], random: np.random.Generator
) -> Floats:
    """Return the total effect of each param by resample (resamples, D)."""
    drawn, others = (_draw(n_categories, random) for _ in range(2))
    changed = []
    for column in range(len(n_categories)):
        rows = drawn.copy()
        rows[:, column] = others[:, column]
        changed.append(rows)
    predicted = forest.predict_by_resample(np.concatenate([drawn, *changed]))
    before, *after = np.split(predicted, len(changed) + 1, axis=1)
    return np.stack([((before - then) ** 2).mean(axis=1) / 2 for then in after], axis=1)


def _draw(n_categories: Sequence[int], random: np.random.Generator) -> Floats:
    """Return params drawn evenly from the space, as the forest takes them (`N_DRAWN`, D)."""
    columns = [
        random.integers(n, size=N_DRAWN).astype(np.float64) if n else random.random(N_DRAWN)
        for n in n_categories
    ]
    return np.stack(columns, axis=1)


def _code(value: ParamValue, scale: Scale) -> float:
    """Return a value as the forest takes it: its place on a range, or the number of a category."""
    if isinstance(scale, NumberScale):
        return scale.share(value)
    return float(scale.index(value))
