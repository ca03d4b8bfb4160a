"""Params that an objective written for Optuna asks for while it runs: drawn one by one, and stored
at once.

A drawn value is in the storage before the trial gets it. A trial that was killed and goes on thus
gets the same values again, and the params that trials asked for are known when the study is opened
again.

Once `N_ALIKE_TRIALS` trials in a row asked for the same params, the params that all trials have,
over the same range, are known: they are drawn before a trial starts, as if they had been written. A
param that some trials lack, or whose range depends on other values, is asked for in each trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.trial import FrozenTrial, TrialState

from automl.errors import ConfigError
from automl.record.texts import counted
from automl.search.domains import (
    ChoiceDomain,
    Domain,
    RangeDomain,
    domain_hull,
    parse_domain,
)
from automl.search.optuna_trials import optuna_distribution
from automl.search.samplers.sampler import Sampler, SamplerInputs, sampler_seed
from automl.search.search_space import SearchSpace, SpaceParam
from automl.search.storage import FIXED_PARAMS, NOT_SUGGESTED, OpenStorage, as_asked
from automl.trial import ParamQuestion, Params, ParamValue, SpaceEntry

N_ALIKE_TRIALS = 3
"""The space is stable after this many trials in a row that showed nothing new."""


@dataclass(frozen=True)
class FoundParam:
    """A param that the objective asked for and that was not written in the space."""

    domain: Domain
    """The domain of the param; if it varies, from the lowest to the highest value of all trials."""
    n_trials: int = 1
    """The number of trials that asked for the param."""
    varies: bool = False
    """Trials asked for the param with different domains."""
    sometimes: bool = False
    """There is a trial that trained without the param."""

    @property
    def is_known(self) -> bool:
        """Whether the param can be drawn before its trial starts."""
        return not self.varies and not self.sometimes

    def asked_again(self, domain: Domain) -> FoundParam:
        """Return the param after one more trial asked for it, with this domain."""
        return replace(
            self,
            domain=domain_hull(self.domain, domain),
            n_trials=self.n_trials + 1,
            varies=self.varies or domain != self.domain,
        )


class SuggestedSpace:
    """Collects from the ended trials of a study the space that their objective asks for."""

    def __init__(self, written: SearchSpace) -> None:
        self.written = written
        self.params: dict[str, FoundParam] = {}
        """The params that were not written, by name, in the order of their first appearance."""
        self.is_stable = False
        """Whether the found params are drawn ahead; never turns false again. Params found later are
        added at once."""
        self._n_trained = 0
        self._n_asked = 0
        """The number of trials that asked for any param."""
        self._n_alike = 0

    def take(self, domains: Mapping[str, Domain], *, trained: bool) -> None:
        """Take the domains that a trial asked for.

        Only a trial that `trained` shows by its missing params that they are optional, and counts
        as a trial without anything new.
        """
        before = self.shape()
        self._n_asked += bool(domains)
        for name, domain in domains.items():
            if name in self.params:
                self.params[name] = self.params[name].asked_again(domain)
            elif name not in self.written.names:
                self.params[name] = FoundParam(domain, sometimes=self._n_trained > 0)
        if trained:
            self._n_trained += 1
            for name in self.params.keys() - domains.keys():
                self.params[name] = replace(self.params[name], sometimes=True)
        if self.shape() != before:
            self._n_alike = 0
        self._n_alike += trained
        self.is_stable |= self._n_alike >= N_ALIKE_TRIALS

    def known(self) -> SearchSpace:
        """Return the space of the params that are drawn before a trial starts."""
        found = self.params.items() if self.is_stable else ()
        known = (SpaceParam(name, param.domain) for name, param in found if param.is_known)
        return SearchSpace((*self.written.params, *known))

    def whole(self) -> SearchSpace:
        """Return the space of all params that were written or that any trial asked for."""
        found = (SpaceParam(name, param.domain) for name, param in self.params.items())
        return SearchSpace((*self.written.params, *found))

    def lines(self) -> Iterator[str]:
        """Yield lines of YAML that could be written as the space, one per param."""
        for name, param in self.params.items():
            yield f"{_yaml_name(name)}: {_yaml_domain(param.domain)}{self._remark(param)}"

    def shape(self) -> Mapping[str, tuple[bool, bool]]:
        """Return by name whether a param's range varies, and whether some trials lack the param.

        The result stays the same from trial to trial once everything was seen.
        """
        return {name: (param.varies, param.sometimes) for name, param in self.params.items()}

    def _remark(self, param: FoundParam) -> str:
        remarks = []
        if param.varies:
            remarks.append("its range depends on the other values")
        if param.sometimes:
            remarks.append(f"in {param.n_trials} of {counted(self._n_asked, 'trial')}")
        return f"  # {'; '.join(remarks)}" if remarks else ""


def _yaml_domain(domain: Domain) -> str:
    if isinstance(domain, ChoiceDomain):
        return f"{{choices: {json.dumps(list(domain.values))}}}"
    assert isinstance(domain, RangeDomain), "objectives ask for ranges and choices only"
    return domain.text


def _yaml_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


class ParamSuggester:
    """Draws and stores the params that running trials ask for. For the main thread only."""

    def __init__(self, search: SamplerInputs, sampler: Sampler, opened: OpenStorage) -> None:
        """Begin with the space of `search`, which is the one that the user wrote."""
        self.found_space = SuggestedSpace(search.space)
        self._search, self._sampler, self._opened = search, sampler, opened
        self._entries: dict[str, SpaceEntry] = {}
        """The entries with which the objective asks for params that trials begin with."""
        self._kinds: dict[str, BaseDistribution] = {}
        """The distribution that the storage has of each param: it refuses another kind."""
        self._asked: dict[int, dict[str, Domain]] = {}
        """The domains that running trials asked for; a database keeps only the first of each."""
        self._differences: list[str] = []
        self._unasked: set[str] = set()
        """Params of the user that they were told the objective does not ask for."""

    @property
    def space(self) -> SearchSpace:
        """The space of the params with which a new trial begins."""
        return self.found_space.known() if self._sampler.extends else self.found_space.written

    def entries(self, params: Params) -> Mapping[str, SpaceEntry]:
        """Return the expected entries of a trial's params that were drawn ahead.

        The trial may ask for them differently, or not at all.
        """
        names = self.space.names
        return {n: entry for n, entry in self._entries.items() if n in params and n in names}

    def differences(self) -> Sequence[str]:
        """Return the differences from what the user wrote that were seen since the last call.

        Each is a line for people, and is returned once.
        """
        differences, self._differences = self._differences, []
        return differences

    def value(self, question: ParamQuestion, known: Params, trial_id: int) -> ParamValue:
        """Return the value of the param that a trial asks for, once it is in the storage.

        `known` are the params that the trial has. Raises ConfigError for an entry that is neither a
        range nor a choice, or of another kind than before.
        """
        name = question.name
        domain = parse_domain(f"suggest {name!r}", question.entry)
        if name in known and name in self.found_space.written.names:
            self._compare(name, domain, question.entry)
            return known[name]
        self._check_kind(name, domain)
        self._asked.setdefault(question.trial, {})[name] = domain
        stored = self._opened.storage.get_trial(trial_id)
        if name not in known:
            value = self._draw(question.trial, SpaceParam(name, domain))
        elif domain.contains(known[name]):
            value = domain.cast(known[name])
        else:  # the user's, or drawn before it was known that its range depends on others
            value = nearest(domain, known[name])
            if value is None:
                value = self._draw(question.trial, SpaceParam(name, domain))
            if name in stored.system_attrs.get(FIXED_PARAMS, {}):
                self._note_other(question.trial, name, known[name], domain, value)
        written = stored.distributions.get(name)
        if written is None or domain_of(written) != domain:
            self._write(trial_id, SpaceParam(name, domain), value)
        if name in self.space.names and domain == self.space[name].domain:
            self._entries[name] = question.entry
        return value

    def drawn_ahead(self, names: Iterable[str]) -> Sequence[str]:
        """Return the names of params that become a trial's own only when it asks for them."""
        return [name for name in names if name not in self.found_space.written.names]

    def not_asked_for(self, names: Sequence[str], trial_id: int) -> None:
        """Note that a trial trained without asking for the named params."""
        drawn = self.drawn_ahead(names)
        if drawn:
            self._opened.storage.set_trial_system_attr(trial_id, NOT_SUGGESTED, drawn)
        trial = self._opened.storage.get_trial(trial_id)
        tried = trial.system_attrs.get(FIXED_PARAMS, {})
        for name in names:
            if name in self._unasked or (name in drawn and name not in tried):
                continue
            self._unasked.add(name)
            self._differences.append(
                f"trial {trial.number} was to try {name}={tried[name]}, and does not ask for it"
                if name in drawn
                else f"space.{name} is written, and there are trials that do not ask for it"
            )

    def take_running(self, trial: FrozenTrial) -> None:
        """Learn from a trial of the study that goes on."""
        for name, kind in trial.distributions.items():
            self._kinds.setdefault(name, kind)

    def take_ended(self, trial: FrozenTrial) -> None:
        """Learn from a trial of the study that has ended, as the storage has it."""
        self.take_running(trial)
        domains = {n: domain_of(d) for n, d in as_asked(trial).distributions.items()}
        domains |= self._asked.pop(trial.number, {})
        self.found_space.take(domains, trained=is_trained(trial))

    def _compare(self, name: str, domain: Domain, entry: SpaceEntry) -> None:
        written = self.found_space.written[name].domain
        if name not in self._entries and domain != written:
            self._differences.append(
                f"space.{name} is {written}, and counts; the objective asks for {domain}"
            )
        self._entries[name] = entry

    def _check_kind(self, name: str, domain: Domain) -> None:
        before = self._kinds.get(name)
        if before is None:
            return
        try:
            check_distribution_compatibility(before, optuna_distribution(SpaceParam(name, domain)))
        except ValueError as error:
            raise ConfigError(
                f"suggest {name!r}: {domain}, where trials before asked for {domain_of(before)} "
                f"(Optuna: {str(error).rstrip('.')}). Give it another name, or keep to one kind of "
                "values."
            ) from error

    def with_point(self, number: int, params: Params, point: Params) -> Params:
        """Return the params with which trial `number` begins, those of `point` included that no
        trial has asked for yet. `params` are the drawn ones.

        A value of `point` that its param cannot have is told. The nearest end of the range stands
        for it, or else the drawn value.
        """
        found = {n: value for n, value in point.items() if n not in self.space.names} | dict(params)
        for name, wanted in point.items():
            if name in params and not (domain := self.space[name].domain).contains(wanted):
                near = nearest(domain, wanted)
                found[name] = params[name] if near is None else near
                self._note_other(number, name, wanted, domain, found[name])
        return found

    def _note_other(
        self, number: int, name: str, wanted: ParamValue, domain: Domain, value: ParamValue
    ) -> None:
        """Note that the user's value of a param is outside what the objective asks for."""
        self._differences.append(
            f"trial {number} was to try {name}={wanted}, and the objective asks for {domain}: "
            f"it has {value}"
        )

    def _draw(self, number: int, param: SpaceParam) -> ParamValue:
        """Return a new value, which follows from the study's seed, the trial's number, the name,
        and the trials that have ended."""
        seed = sampler_seed(self._search.study_seed, param.name)
        inputs = SamplerInputs(SearchSpace((param,)), seed, (), self._search.open_study)
        choose = self._sampler.open_for_one_param(inputs)(number)
        assert choose is not None, "a sampler of one param has a value for each trial"
        return choose(param)

    def _write(self, trial_id: int, param: SpaceParam, value: Any) -> None:
        """Store the value; the journal replaces one that was drawn before, a database keeps it."""
        kind = optuna_distribution(param)
        internal = kind.to_internal_repr(value)
        self._opened.storage.set_trial_param(trial_id, param.name, internal, kind)
        self._opened.sync()
        self._kinds.setdefault(param.name, kind)


def is_trained(trial: FrozenTrial) -> bool:
    """Return whether the trial has asked for all its params, since it has reported at least."""
    pruned = trial.state is TrialState.PRUNED and bool(trial.intermediate_values)
    return pruned or trial.state is TrialState.COMPLETE


def params_within_space(space: SearchSpace, params: Params) -> Params:
    """Return the params that the space has, with values that it allows."""
    return {
        name: value
        for name, value in params.items()
        if name in space.names and space[name].domain.contains(value)
    }


def nearest(domain: Domain, value: ParamValue) -> ParamValue:
    """Return the value of a range that is nearest to a number; None: it is none of a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return domain.nearest(value) if isinstance(domain, RangeDomain) else None


def domain_of(known: BaseDistribution) -> Domain:
    """Return the domain of one of Optuna's distributions; reverses `optuna_distribution`."""
    match known:
        case CategoricalDistribution():
            return ChoiceDomain(tuple(known.choices))
        case IntDistribution():
            return RangeDomain(
                known.low, known.high, known.log, None if known.step == 1 else known.step
            )
        case FloatDistribution():
            return RangeDomain(known.low, known.high, known.log, known.step)
    raise AssertionError(f"{known} is none of Optuna's three")
