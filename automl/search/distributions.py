"""The search space in Optuna's words, and a trial as Optuna writes one down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from automl.search.domains import Choices, Fixed, Range
from automl.search.space import Param, Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distribution for each param that is searched."""
    return {param.name: distribution(param) for param in space.params if param.is_searched}


def distribution(param: Param) -> BaseDistribution:
    """Of a param that is searched."""
    match param.domain:
        case Choices(values):
            return CategoricalDistribution(values)
        case Range(low=int(low), high=int(high), log=log, step=step):
            return IntDistribution(low, high, log=log, step=int(step or 1))
        case Range(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=step)
        case Fixed():
            raise AssertionError(f"{param.name} is fixed and not searched")


def running_trial(
    number: int,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    user_attrs: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """A trial as it begins."""
    return FrozenTrial(
        number=number,
        trial_id=-1,  # the storage gives it one
        state=optuna.trial.TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs=dict(user_attrs or {}),
        system_attrs={},
        intermediate_values={},
    )
