"""Grid search: every combination of a space once, in an order that the seed decides.

It does not use Optuna's grid sampler, which passes over all trials and knows no conditions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from automl.config.range_text import range_text
from automl.errors import ConfigError
from automl.search.domains import ChoiceDomain, FixedDomain, RangeDomain
from automl.search.samplers.sampler import (
    ChooseValue,
    OpenSampler,
    Sampler,
    SamplerInputs,
)
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Params, ParamValue

MAX_COMBINATIONS = 100_000
"""A larger grid is taken for a mistake, and would need much memory."""


@dataclass
class GridSampler(Sampler):
    """Every combination once, in an order shuffled by `study.seed`; ranges need a `step`."""

    extends: ClassVar[bool] = False
    mixes_likely: ClassVar[bool] = False
    several_metrics: ClassVar[bool] = True

    def n_may_pend(self, n_ended: int) -> None:
        return None

    def open(self, search: SamplerInputs) -> OpenSampler:
        done = (*search.enqueued, *search.earlier)
        combinations = grid_points(search.space, search.study_seed, done)
        n_before = max(len(search.enqueued), len(search.earlier))

        def choose_for(number: int) -> ChooseValue | None:
            place = number - n_before
            if place >= len(combinations):
                return None
            return lambda param: combinations[place][param.name]

        return choose_for


def grid_points(
    space: SearchSpace, seed: int, done: Sequence[Params] = ()
) -> list[dict[str, ParamValue]]:
    """Return all combinations except `done`. Raises ConfigError for a space without a grid.

    The order comes from hashes, so it is the same on every machine and version of Python.
    """
    values = {param.name: axis_values(param) for param in space.params}
    combinations = []
    for params in _combine(space.params, values, {}):
        if params not in done:
            combinations.append(params)
        if len(combinations) > MAX_COMBINATIONS:
            raise ConfigError(
                f"sampler=grid: the space has more than {MAX_COMBINATIONS} combinations; give "
                "larger steps or fewer choices, or take another sampler."
            )
    return sorted(combinations, key=lambda params: _shuffle_key(seed, params))


def axis_values(param: SpaceParam) -> tuple[ParamValue, ...]:
    """Return the values of one param. Raises ConfigError for a range without steps."""
    match param.domain:
        case FixedDomain(value):
            return (value,)
        case ChoiceDomain(values):
            return values
        case RangeDomain() as span:
            return _steps(param.name, span)


def _steps(name: str, span: RangeDomain) -> tuple[ParamValue, ...]:
    if span.step is None and (span.log or not span.is_integer):
        raise ConfigError(
            f"space.{name}={span.text}: sampler=grid needs a step "
            f"({range_text(span.low, span.high, step='STEP')}) or choices (1,2,3)."
        )
    if (n := span.n_values) > MAX_COMBINATIONS:
        raise ConfigError(f"space.{name}: {n} values are too many for sampler=grid; raise step.")
    return span.all_values()


def _combine(
    params: Sequence[SpaceParam], values: Mapping[str, Sequence[ParamValue]], chosen: Params
) -> Iterator[dict[str, ParamValue]]:
    if not params:
        yield dict(chosen)
        return
    param, rest = params[0], params[1:]
    if not param.is_active(chosen):
        yield from _combine(rest, values, chosen)
        return
    for value in values[param.name]:
        yield from _combine(rest, values, {**chosen, param.name: value})


def _shuffle_key(seed: int, params: Params) -> bytes:
    return hashlib.sha256(f"{seed}:{json.dumps(params, sort_keys=True)}".encode()).digest()
