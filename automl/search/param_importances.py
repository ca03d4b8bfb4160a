"""Says how much each param matters, by PED-ANOVA of Optuna, with its uncertainty by a bootstrap.

PED-ANOVA (Watanabe et al., 2023, https://arxiv.org/abs/2304.10255) compares where the best tenth of
the trials lies with where all lie. A param that only some trials have is judged among those.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from automl.search.storage import silence_optuna
from automl.trial import Direction, Params, ParamValue

MIN_TRIALS = 8
"""Fewer trials say nothing of a param."""
MAX_TRIALS = 1_000
"""If there are more trials, a random part of them is used."""
N_RESAMPLES = 10


@dataclass(frozen=True)
class ParamImportance:
    """How much a param matters among the params that all trials have."""

    name: str
    share: float
    """Its part of the variance explained, from 0 to 1."""
    low: float
    high: float
    """The share in the resamples: the 10th and the 90th percentile."""
    is_conditional: bool = False
    """Whether only some trials have the param; its share then counts among those."""


@dataclass(frozen=True)
class NumberScale:
    """The range of a param that is a number."""

    low: float
    high: float
    is_log: bool


Scale = NumberScale | tuple[ParamValue, ...]
"""The range of a number, or the categories of a param."""


def param_importances(
    trials: Sequence[tuple[Params, float]],
    scales: Mapping[str, Scale],
    direction: Direction,
    *,
    seed: int = 0,
) -> list[ParamImportance]:
    """Return the importances of the params in `scales`, the largest first.

    `trials`: the params and the finite value of each trial. Empty if there are too few.
    """
    silence_optuna()
    random = np.random.default_rng(seed)
    if len(trials) > MAX_TRIALS:
        trials = [trials[i] for i in random.permutation(len(trials))[:MAX_TRIALS]]
    distributions = {name: _distribution(scale) for name, scale in scales.items()}
    common = [name for name in distributions if all(name in params for params, _ in trials)]
    found = _judge(trials, common, distributions, direction, random)
    for name in distributions.keys() - set(common):
        own = [(params, value) for params, value in trials if name in params]
        names = [n for n in distributions if all(n in params for params, _ in own)]
        judged = _judge(own, names, distributions, direction, random)
        found += [
            ParamImportance(i.name, i.share, i.low, i.high, is_conditional=True)
            for i in judged
            if i.name == name
        ]
    return sorted(found, key=lambda importance: importance.share, reverse=True)


def _judge(
    trials: Sequence[tuple[Params, float]],
    names: Sequence[str],
    distributions: Mapping[str, BaseDistribution],
    direction: Direction,
    random: np.random.Generator,
) -> list[ParamImportance]:
    if len(trials) < MIN_TRIALS or not names:
        return []
    own = {name: distributions[name] for name in names}
    frozen = [
        optuna.create_trial(
            params={name: _choice(params[name]) for name in names}, distributions=own, value=value
        )
        for params, value in trials
    ]
    whole = _shares(frozen, names, direction)
    resamples = [
        _shares(
            [frozen[i] for i in random.integers(len(frozen), size=len(frozen))], names, direction
        )
        for _ in range(N_RESAMPLES)
    ]
    found = []
    for name in names:
        low, high = np.quantile([shares[name] for shares in resamples], [0.1, 0.9])
        share = whole[name]
        found.append(ParamImportance(name, share, min(share, float(low)), max(share, float(high))))
    return found


def _shares(
    trials: Sequence[FrozenTrial], names: Sequence[str], direction: Direction
) -> Mapping[str, float]:
    study = optuna.create_study(direction=StudyDirection[direction.name.upper()])
    study.add_trials(trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials, and that the evaluator is experimental
        found = PedAnovaImportanceEvaluator().evaluate(study, params=list(names))
    total = sum(found.values())
    return {name: found[name] / total if total > 0 else 1 / len(names) for name in names}


def _distribution(scale: Scale) -> BaseDistribution:
    if isinstance(scale, NumberScale):
        return FloatDistribution(scale.low, scale.high, log=scale.is_log)
    return CategoricalDistribution([*map(_choice, scale)])


def _choice(value: ParamValue) -> ParamValue:
    return value
