"""The params of trials that ask for them while they run: drawn one by one, and stored at once.

A drawn value is in the storage before the trial gets it. A trial that was killed and goes on thus
gets the same values again, and the params that trials asked for are known when the study is opened
again. `discovered_space.py` tells which params can be drawn before a trial starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from automl.search.discovered_space import FoundSpace
from automl.search.domains import ChoiceDomain, Domain, RangeDomain, parse_domain
from automl.search.optuna_trials import optuna_distribution
from automl.search.samplers.sampler import Sampler, SamplerInputs, sampler_seed
from automl.search.search_space import SearchSpace, SpaceParam
from automl.search.storage import NOT_SUGGESTED, OpenStorage, as_asked
from automl.trial import ParamQuestion, Params, ParamValue, SpaceEntry


class ParamSuggester:
    """Draws and stores the params that running trials ask for. For the main thread alone."""

    def __init__(self, search: SamplerInputs, sampler: Sampler, opened: OpenStorage) -> None:
        """Begin with the space of `search`, which is the one that the user wrote."""
        self.found = FoundSpace(search.space)
        self._search, self._sampler, self._opened = search, sampler, opened
        self._entries: dict[str, SpaceEntry] = {}
        """The entries with which the objective asks for params that trials begin with."""
        self._kinds: dict[str, BaseDistribution] = {}
        """The distribution that the storage has of each param: it refuses another kind."""
        self._asked: dict[int, dict[str, Domain]] = {}
        """The domains that running trials asked for; a database keeps only the first of each."""
        self._differences: list[str] = []
        self._unasked: set[str] = set()
        """Written params that the user was told the objective does not ask for."""

    @property
    def space(self) -> SearchSpace:
        """The space of the params with which a new trial begins."""
        return self.found.known() if self._sampler.extends else self.found.written

    def entries(self, params: Params) -> Mapping[str, SpaceEntry]:
        """Return the expected entries of a trial's params that were drawn ahead.

        The trial may ask for them differently, or not at all.
        """
        names = self.space.names
        return {n: entry for n, entry in self._entries.items() if n in params and n in names}

    def differences(self) -> Sequence[str]:
        """Return the differences from the written space that were seen since the last call.

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
        if name in known and name in self.found.written.names:
            self._compare(name, domain, question.entry)
            return known[name]
        self._check_kind(name, domain)
        self._asked.setdefault(question.trial, {})[name] = domain
        if name not in known:
            value = self._draw(question.trial, SpaceParam(name, domain))
        elif domain.contains(known[name]):
            value = known[name]
        else:  # drawn before it was known that its range depends on others
            value = nearest(domain, known[name])
        written = self._opened.storage.get_trial(trial_id).distributions.get(name)
        if written is None or domain_of(written) != domain:
            self._write(trial_id, SpaceParam(name, domain), value)
        if name in self.space.names and domain == self.space[name].domain:
            self._entries[name] = question.entry
        return value

    def drawn_ahead(self, names: Iterable[str]) -> Sequence[str]:
        """Return the names of params that become a trial's own only when it asks for them."""
        return [name for name in names if name not in self.found.written.names]

    def not_asked_for(self, names: Sequence[str], trial_id: int) -> None:
        """Note that a trial trained without asking for the named params."""
        drawn = self.drawn_ahead(names)
        if drawn:
            self._opened.storage.set_trial_system_attr(trial_id, NOT_SUGGESTED, drawn)
        for name in names:
            if name not in drawn and name not in self._unasked:
                self._unasked.add(name)
                self._differences.append(
                    f"space.{name} is written, and there are trials that do not ask for it"
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
        self.found.take(domains, trained=is_trained(trial))

    def _compare(self, name: str, domain: Domain, entry: SpaceEntry) -> None:
        written = self.found.written[name].domain
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

    def _draw(self, number: int, param: SpaceParam) -> ParamValue:
        """Return a new value: the enqueued one if the param can have it, else a draw.

        The draw follows from the study's seed, the trial's number, the name, and the trials that
        have ended.
        """
        all_enqueued = self._search.enqueued
        enqueued = all_enqueued[number] if number < len(all_enqueued) else {}
        if param.name in enqueued:
            if param.domain.contains(enqueued[param.name]):
                return param.domain.cast(enqueued[param.name])
            self._differences.append(
                f"study.enqueue[{number}].{param.name}={enqueued[param.name]} is not tried: the "
                f"objective asks for {param.domain}"
            )
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
    """Return the value of a range that is nearest to a number."""
    assert isinstance(domain, RangeDomain), "choices do not vary"
    assert isinstance(value, int | float), "one kind of values for a name"
    return domain.cast(min(max(value, domain.low), domain.high))


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
