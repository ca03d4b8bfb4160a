"""Says how much each param matters, by PED-ANOVA of Optuna, with its uncertainty by a bootstrap.

PED-ANOVA (Watanabe et al., 2023, https://arxiv.org/abs/2304.10255) compares where the best tenth of
the trials lies with where all lie. A param that only some trials have is judged among those.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

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
    draws = [random.integers(len(trials), size=len(trials)) for _ in range(N_RESAMPLES)]
    whole = _shares(trials, own, direction)
    resamples = [_shares([trials[i] for i in draw], own, direction) for draw in draws]
    found = []
    for name in names:
        low, high = np.quantile([shares[name] for shares in resamples], [0.1, 0.9])
        share = whole[name]
        found.append(ParamImportance(name, share, min(share, float(low)), max(share, float(high))))
    return found


class _FixedTrials(InMemoryStorage):
    """A storage that has certain trials, which are not copied: copies take 0.2 ms each."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._trials = list(trials)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return [t for t in self._trials if states is None or t.state in states]


def _shares(
    trials: Sequence[tuple[Params, float]],
    distributions: Mapping[str, BaseDistribution],
    direction: Direction,
) -> Mapping[str, float]:
    frozen = [
        _frozen_trial(number, {name: params[name] for name in distributions}, distributions, value)
        for number, (params, value) in enumerate(trials)
    ]
    storage, names = _FixedTrials(frozen), list(distributions)
    study = optuna.create_study(storage=storage, direction=StudyDirection[direction.name.upper()])
    from optuna.importance import PedAnovaImportanceEvaluator  # loads scipy.stats: half a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials, and that the evaluator is experimental
        found = PedAnovaImportanceEvaluator().evaluate(study, params=names)
    total = sum(found.values())
    return {name: found[name] / total if total > 0 else 1 / len(names) for name in names}


def _frozen_trial(
    number: int, params: Params, distributions: Mapping[str, BaseDistribution], value: float
) -> FrozenTrial:
    """Return a finished trial with an id of its own, by which the evaluator tells trials apart."""
    now = datetime.now()
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=TrialState.COMPLETE,
        value=value,
        datetime_start=now,
        datetime_complete=now,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


def _distribution(scale: Scale) -> BaseDistribution:
    if isinstance(scale, NumberScale):
        return FloatDistribution(scale.low, scale.high, log=scale.is_log)
    return CategoricalDistribution(list(scale))
