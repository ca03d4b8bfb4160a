"""The params of a trial that asks for them while it runs: drawn one by one, written down at once.

A param that was drawn is in the storage before the trial learns of it. So a trial that was killed
and goes on gets the same values again, and what a study's trials asked for is known when the study
is opened again (`discovered_space.py`).
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
    """What is known of the params that are asked for. For the main thread."""

    def __init__(self, search: SamplerInputs, sampler: Sampler, opened: OpenStorage) -> None:
        """The space of `search` is the one that was written."""
        self.found = FoundSpace(search.space)
        self._search, self._sampler, self._opened = search, sampler, opened
        self._entries: dict[str, SpaceEntry] = {}
        """As the objective asks for params that trials begin with."""
        self._kinds: dict[str, BaseDistribution] = {}
        """What the storage compares a param with: it refuses another kind of it."""
        self._asked: dict[int, dict[str, Domain]] = {}
        """What running trials asked for, of which a database keeps the first range alone."""
        self._differences: list[str] = []
        self._unasked: set[str] = set()
        """Written params of which it was said that the objective does not ask for them."""

    @property
    def space(self) -> SearchSpace:
        """What a trial that is asked for now begins with."""
        return self.found.known() if self._sampler.extends else self.found.written

    def entries(self, params: Params) -> Mapping[str, SpaceEntry]:
        """As a trial will ask for those of its params that were drawn for this: it need not."""
        names = self.space.names
        return {n: entry for n, entry in self._entries.items() if n in params and n in names}

    def differences(self) -> Sequence[str]:
        """What has been seen since the last call to differ from the space that was written; for
        people, each once."""
        said, self._differences = self._differences, []
        return said

    def value(self, asked: ParamQuestion, known: Params, trial_id: int) -> ParamValue:
        """The value of the param that a trial with the known ones asks for; in the storage.

        Raises ConfigError for what is no range and no choice, or another kind than before.
        """
        name = asked.name
        domain = parse_domain(f"suggest {name!r}", asked.entry)
        if name in known and name in self.found.written.names:
            self._compare(name, domain, asked.entry)
            return known[name]
        self._check_kind(name, domain)
        self._asked.setdefault(asked.trial, {})[name] = domain
        if name not in known:
            value = self._draw(asked.trial, SpaceParam(name, domain))
        elif domain.contains(known[name]):
            value = known[name]
        else:  # drawn before its range was seen to depend on others
            value = nearest(domain, known[name])
        written = self._opened.storage.get_trial(trial_id).distributions.get(name)
        if written is None or domain_of(written) != domain:
            self._write(trial_id, SpaceParam(name, domain), value)
        if name in self.space.names and domain == self.space[name].domain:
            self._entries[name] = asked.entry
        return value

    def drawn_ahead(self, names: Iterable[str]) -> Sequence[str]:
        """Return those of a trial's params that are its own only once it asks for them."""
        return [name for name in names if name not in self.found.written.names]

    def not_asked_for(self, names: Sequence[str], trial_id: int) -> None:
        """A trial trained without asking for these of its params."""
        drawn = self.drawn_ahead(names)
        if drawn:
            self._opened.storage.set_trial_system_attr(trial_id, NOT_SUGGESTED, drawn)
        for name in names:
            if name not in drawn and name not in self._unasked:
                self._unasked.add(name)
                self._differences.append(
                    f"space.{name} is written, and there are trials that do not ask for it"
                )

    def began(self, trial: FrozenTrial) -> None:
        """A trial of the study goes on."""
        for name, kind in trial.distributions.items():
            self._kinds.setdefault(name, kind)

    def ended(self, trial: FrozenTrial) -> None:
        """A trial of the study has ended, as the storage has it."""
        self.began(trial)
        asked = {n: domain_of(d) for n, d in as_asked(trial).distributions.items()}
        asked |= self._asked.pop(trial.number, {})
        self.found.take(asked, trained=is_trained(trial))

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
        """As the study's seed, the trial's number, the name and the trials that have ended decide;
        an enqueued value where there is one that the param can have."""
        enqueued = self._search.enqueued
        first = enqueued[number] if number < len(enqueued) else {}
        if param.name in first:
            if param.domain.contains(first[param.name]):
                return param.domain.cast(first[param.name])
            self._differences.append(
                f"study.enqueue[{number}].{param.name}={first[param.name]} is not tried: the "
                f"objective asks for {param.domain}"
            )
        seed = sampler_seed(self._search.study_seed, param.name)
        one = SamplerInputs(SearchSpace((param,)), seed, (), self._search.open_study)
        choose = self._sampler.one(one)(number)
        assert choose is not None, "a sampler of one param has a value for each trial"
        return choose(param)

    def _write(self, trial_id: int, param: SpaceParam, value: Any) -> None:
        """Where it was drawn before, the journal replaces it; a database keeps what it has."""
        kind = optuna_distribution(param)
        internal = kind.to_internal_repr(value)
        self._opened.storage.set_trial_param(trial_id, param.name, internal, kind)
        self._opened.sync()
        self._kinds.setdefault(param.name, kind)


def is_trained(trial: FrozenTrial) -> bool:
    """Whether it came so far as to ask for all that it does: it has reported at least."""
    pruned = trial.state is TrialState.PRUNED and bool(trial.intermediate_values)
    return pruned or trial.state is TrialState.COMPLETE


def params_within_space(space: SearchSpace, params: Params) -> Params:
    """Those of the params that such a space can have."""
    return {
        name: value
        for name, value in params.items()
        if name in space.names and space[name].domain.contains(value)
    }


def nearest(domain: Domain, value: ParamValue) -> ParamValue:
    """The value of a range that is next to a number."""
    assert isinstance(domain, RangeDomain), "choices do not vary"
    assert isinstance(value, int | float), "one kind of values for a name"
    return domain.cast(min(max(value, domain.low), domain.high))


def domain_of(known: BaseDistribution) -> Domain:
    """Back from Optuna's words; see `optuna_trials.py`."""
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
