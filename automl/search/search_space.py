"""The search space: named params, the domain of each, and the conditions under which it exists.

    depth:     {low: 2, high: 8}                           2..8: integers, an integer range
    lr:        {low: 1e-4, high: 1e-1, log: true}          log:1e-4..1e-1: a float range
    optimizer: {choices: [sgd, adam]}
    momentum:  {low: 0.0, high: 0.99, when: {optimizer: sgd}}
    width:     {low: 8, high: 512, likely: 64}             tried first, and near it
    dropout:   0.1                                         a bare value is fixed

`when` names other params and the value, or list of values, that they must have; all must hold.
A param whose condition does not hold is absent from the trial. Texts (`2..8`,
and Hydra's `interval(…)`) are turned into these entries by `cli/`, not here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from automl.config.checks import check_setting, field_defaults
from automl.errors import ConfigError
from automl.search.domains import (
    Domain,
    FixedDomain,
    domain_hull,
    is_same_value,
    parse_domain,
)
from automl.trial import Params, ParamValue, SpaceEntry

_MAX_NAME_CHARACTERS = 250
"""The longest key of a param that MLflow takes."""


@dataclass(frozen=True)
class SpaceParam:
    """A param: its name, its domain, and the values of other params under which it is active."""

    name: str
    domain: Domain
    when: Mapping[str, tuple[ParamValue, ...]] = field(default_factory=dict)
    likely: ParamValue = None
    """The value that the user expects to be good; None: they said nothing."""

    @property
    def is_searched(self) -> bool:
        return not isinstance(self.domain, FixedDomain)

    def is_active(self, params: Params) -> bool:
        """Return whether the param is active, given the params before it.

        An absent param fulfils no condition.
        """
        return all(
            name in params and any(is_same_value(params[name], value) for value in values)
            for name, values in self.when.items()
        )


@dataclass(frozen=True)
class SearchSpace:
    """All params of a study, each after the params that its condition names."""

    params: tuple[SpaceParam, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(param.name for param in self.params)

    @cached_property
    def fixed(self) -> Params:
        """The values of the params that are not searched."""
        return {p.name: p.domain.value for p in self.params if isinstance(p.domain, FixedDomain)}

    @cached_property
    def likely_points(self) -> Sequence[Params]:
        """The point of all values that the user expects to be good; empty: they named none."""
        point = {param.name: param.likely for param in self.params if param.likely is not None}
        return [point] if point else []

    def __getitem__(self, name: str) -> SpaceParam:
        return next(param for param in self.params if param.name == name)

    def fill(self, choose: Callable[[SpaceParam], ParamValue]) -> dict[str, ParamValue]:
        """Return the params of one trial; `choose` is called for each active, searched param."""
        params: dict[str, ParamValue] = {}
        for param in self.params:
            if param.is_active(params):
                domain = param.domain
                params[param.name] = (
                    domain.value if isinstance(domain, FixedDomain) else choose(param)
                )
        return params

    def plain(self) -> dict[str, Any]:
        """Return canonical entries, which JSON can hold and `parse_space` reads back."""
        return {param.name: _plain(param) for param in self.params}

    def defaults(self) -> dict[str, Any]:
        """Return the parts of `plain` that hold for keys which an entry leaves out."""
        return {param.name: field_defaults(type(param.domain)) for param in self.params}

    def has(self, params: Params) -> bool:
        """Return whether `params`, some or all of a trial's, can occur together."""
        try:
            self.check(params)
        except ConfigError:
            return False
        return True

    def check(
        self, params: Params, key: str = "study.enqueue", *, may_have_others: bool = False
    ) -> None:
        """Raise ConfigError unless `params` (some or all of a trial's) can occur together.

        Params that the space lacks are refused, unless a trial may have others.
        """
        for name, value in params.items():
            if name not in self.names:
                if may_have_others:
                    continue
                raise ConfigError(
                    f"{key}.{name}: no such param in the space ({', '.join(self.names)})."
                )
            param = self[name]
            if not param.domain.contains(value):
                raise ConfigError(f"{key}.{name}={value}: must be {param.domain} (space.{name}).")
            if not param.is_active({**self.fixed, **params}):
                raise ConfigError(
                    f"{key}.{name}={value}: {name} is only there when "
                    f"{_condition_text(param.when)}; name that too, or leave {name} out."
                )


@dataclass(frozen=True)
class EnqueuedPoint:
    """Some or all params of a trial that a user adds to a study while sweeps run."""

    params: Params
    request: str
    """The identity of this point among all others, so that none is tried twice."""
    may_be_outside: bool = False
    """Whether values outside the space are allowed."""

    def check(self, space: SearchSpace, *, may_have_others: bool = False) -> None:
        """Raise ConfigError for names that the space lacks, and for values outside it unless they
        are allowed. `may_have_others`: the objective asks for its params, perhaps for others."""
        if may_have_others:
            check_setting(
                not self.may_be_outside,
                "outside",
                "true",
                "the objective gives each range itself, and takes no value outside. Leave it out.",
            )
            space.check(self.params, "params", may_have_others=True)
            return
        if self.may_be_outside:
            space.check({n: v for n, v in self.params.items() if n not in space.names}, "params")
            return
        try:
            space.check(self.params, "params")
        except ConfigError as error:
            is_known = {*space.names}.issuperset(self.params)
            remedy = " To try it all the same, give outside=true." if is_known else ""
            raise ConfigError(f"{error}{remedy}") from error

    def outside(self, space: SearchSpace) -> Params:
        """Return the params with values that the space does not have."""
        known = ((n, value) for n, value in self.params.items() if n in space.names)
        return {n: value for n, value in known if not space[n].domain.contains(value)}


def parse_space(entries: Mapping[str, Any]) -> SearchSpace:
    """Read the `space` of a config. Raises ConfigError naming `space.NAME`, value and remedy."""
    params = {name: _parse_param(name, entry) for name, entry in entries.items()}
    for param in params.values():
        _check_condition(param, params)
    return SearchSpace(_parents_first(params))


def asked_space(written: SearchSpace, asked: Mapping[str, Sequence[SpaceEntry]]) -> SearchSpace:
    """Return the space that the user wrote, with the params that an objective asked for besides, by
    the entries with which its trials asked for each."""
    found = []
    for name, entries in asked.items():
        if name not in written.names:
            domains = (parse_domain(name, entry) for entry in entries)
            found.append(SpaceParam(name, functools.reduce(domain_hull, domains)))
    return SearchSpace((*written.params, *found))


def _parse_param(name: object, entry: object) -> SpaceParam:
    key = f"space.{name}"
    if not (isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARACTERS and name.isprintable()):
        raise ConfigError(
            f"{key}: the name of a param is a text of 1 to {_MAX_NAME_CHARACTERS} "
            "printable characters."
        )
    when: object = None
    likely: Any = None
    if isinstance(entry, Mapping):
        when, likely = entry.get("when"), entry.get("likely")
        entry = {k: v for k, v in entry.items() if k not in ("when", "likely")}
    domain = parse_domain(key, entry)
    if likely is not None:
        if not domain.contains(likely):
            raise ConfigError(f"{key}.likely={likely}: must be {domain} ({key}).")
        likely = domain.cast(likely)
    return SpaceParam(name, domain, _parse_condition(f"{key}.when", when), likely)


def _parse_condition(key: str, when: object) -> dict[str, tuple[ParamValue, ...]]:
    if when is None:
        return {}
    if not isinstance(when, Mapping) or not when:
        raise ConfigError(f"{key}={when}: names a param and its value, such as {{optimizer: sgd}}.")
    listed = {n: v if isinstance(v, list | tuple) else [v] for n, v in when.items()}
    if empty := [name for name, values in listed.items() if not values]:
        raise ConfigError(f"{key}.{empty[0]}=[]: no value; name at least one.")
    return {str(name): tuple(values) for name, values in listed.items()}


def _check_condition(param: SpaceParam, params: Mapping[str, SpaceParam]) -> None:
    for name, values in param.when.items():
        key = f"space.{param.name}.when.{name}"
        if name not in params:
            raise ConfigError(f"{key}: no such param in the space ({', '.join(params)}).")
        for value in values:
            if not params[name].domain.contains(value):
                raise ConfigError(
                    f"{key}={value}: can never hold; space.{name} is {params[name].domain}."
                )


def _parents_first(params: Mapping[str, SpaceParam]) -> tuple[SpaceParam, ...]:
    """Return the params in their order, each moved behind the params that its condition names."""
    placed: dict[str, SpaceParam] = {}
    while rest := [param for param in params.values() if param.name not in placed]:
        ready = next((param for param in rest if param.when.keys() <= placed.keys()), None)
        if ready is None:
            raise ConfigError(
                f"space: the conditions of {', '.join(p.name for p in rest)} wait for each other; "
                "drop one `when`."
            )
        placed[ready.name] = ready
    return tuple(placed.values())


def _plain(param: SpaceParam) -> Any:
    if not param.when and param.likely is None:
        return param.domain.plain()
    when = {name: list(values) for name, values in param.when.items()}
    more: dict[str, Any] = {"when": when} if when else {}
    more |= {} if param.likely is None else {"likely": param.likely}
    return param.domain.plain() | more


def _condition_text(when: Mapping[str, tuple[ParamValue, ...]]) -> str:
    return " and ".join(
        f"{name} is {' or '.join(map(str, values))}" for name, values in when.items()
    )
