"""The search spaces that a study has had, and what trials of earlier ones teach a sampler. Pure.

A trial keeps the params that it was asked for with. A sampler reads it as the present space has it:
without the params that are gone, with the values that it is said to have had of those that were
added, and with the others where the present domain can hold them.
"""

from __future__ import annotations

import copy
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from automl.search.domains import FixedDomain, RangeDomain
from automl.search.search_space import SearchSpace, SpaceParam, parse_space
from automl.trial import Params, ParamValue, StudyEdited

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class SpaceHistory:
    """The present space of a study, and the earlier ones with the numbers of their trials."""

    space: SearchSpace
    earlier: Sequence[tuple[int, SearchSpace]] = ()
    """The earlier spaces in order, each with the number of the first trial that it does not hold
    for."""
    defaults: Mapping[str, ParamValue] = field(default_factory=dict)
    """The values that earlier trials had of params that were added since, by name."""

    @classmethod
    def from_edits(cls, space: SearchSpace, edits: Sequence[StudyEdited]) -> SpaceHistory:
        """Return the history of a study that has `space` after `edits`."""
        of_space = [edit for edit in edits if edit.space]
        earlier = [(e.n_trials, parse_space(json.loads(e.space_before))) for e in of_space]
        defaults = {name: json.loads(value) for e in of_space for name, value in e.defaults.items()}
        return cls(space, earlier, {name.removeprefix("space."): v for name, v in defaults.items()})

    @property
    def n_earlier(self) -> int:
        """The number of trials that were asked for in an earlier space; they come first."""
        return self.earlier[-1][0] if self.earlier else 0

    def at(self, number: int) -> SearchSpace:
        """Return the space in which a trial was asked for."""
        place = bisect_right(self.earlier, number, key=lambda earlier: earlier[0])
        return self.earlier[place][1] if place < len(self.earlier) else self.space

    def known_params(self, number: int, params: Params) -> Params:
        """Return the params of a trial, those that were fixed or added later included."""
        return {**self.defaults, **self.at(number).fixed, **params}

    def as_present(self, number: int, params: Params) -> Params:
        """Return those of a trial's params that the present space has, and can represent."""
        known = self.known_params(number, params)
        found: dict[str, ParamValue] = {}
        for param in self.space.params:
            name = param.name
            if name in known and param.is_active(found) and _can_hold(param, known[name]):
                found[name] = known[name]
        return found

    def adapt(
        self, trial: FrozenTrial, distributions: Mapping[str, BaseDistribution]
    ) -> FrozenTrial:
        """Return a trial of Optuna as the present space has it, with its `distributions`."""
        if trial.number >= self.n_earlier:
            return trial
        params = self.as_present(trial.number, trial.params)
        trial = copy.copy(trial)
        trial.params = {n: _typed(v, params[n]) for n, v in distributions.items() if n in params}
        trial.distributions = {n: d for n, d in distributions.items() if n in params}
        return trial


def edited_space(edits: Sequence[StudyEdited]) -> Mapping[str, Any] | None:
    """Return the plain space since the last edit of it; None: it was not edited."""
    spaces = [edit.space for edit in edits if edit.space]
    return json.loads(spaces[-1]) if spaces else None


def _can_hold(param: SpaceParam, value: ParamValue) -> bool:
    """Return whether a sampler can place the value on the axis of the param.

    A number outside of a range has a place beyond its end. A fixed param has no axis.
    """
    domain = param.domain
    if isinstance(domain, FixedDomain):
        return True
    if not isinstance(domain, RangeDomain):
        return domain.contains(value)
    numbers = int if domain.is_integer else int | float
    if isinstance(value, bool) or not isinstance(value, numbers):
        return False
    return not domain.log or value > 0


def _typed(distribution: BaseDistribution, value: Any) -> Any:
    from optuna.distributions import FloatDistribution

    return float(value) if isinstance(distribution, FloatDistribution) else value
