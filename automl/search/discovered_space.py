"""The space that an objective written for Optuna turns out to have, folded from its trials. Pure.

Such an objective asks for each param while it runs, and may ask for others in the next trial. Once
`N_ALIKE_TRIALS` trials in a row asked for the same ones, those that every trial has, over one and
the same
range, are known: they are drawn before a trial starts, as if they had been written. A param that
some trials lack, or whose range depends on other values, is asked for in each trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from automl.search.domains import ChoiceDomain, Domain, RangeDomain
from automl.search.search_space import SearchSpace, SpaceParam

N_ALIKE_TRIALS = 3


@dataclass(frozen=True)
class FoundParam:
    """A param as trials asked for it."""

    domain: Domain
    """Of one whose range varies: from the lowest to the highest that it had."""
    n_trials: int = 1
    varies: bool = False
    sometimes: bool = False
    """A trial that trained lacked it."""

    @property
    def is_known(self) -> bool:
        """Whether it can be drawn before its trial starts."""
        return not self.varies and not self.sometimes

    def again(self, domain: Domain) -> FoundParam:
        """As another trial asked for it."""
        return replace(
            self,
            domain=_hull(self.domain, domain),
            n_trials=self.n_trials + 1,
            varies=self.varies or domain != self.domain,
        )


class FoundSpace:
    """Takes the ended trials of a study one after another."""

    def __init__(self, written: SearchSpace) -> None:
        self.written = written
        self.params: dict[str, FoundParam] = {}
        """Those that were not written, by name, in the order in which they were first seen."""
        self.is_stable = False
        """Stays: what is found later is added, and nothing waits for it."""
        self._n_trained = 0
        self._n_asked = 0
        """Trials that asked for anything."""
        self._n_alike = 0

    def take(self, domains: Mapping[str, Domain], *, trained: bool) -> None:
        """A trial asked for these. Only one that came so far as to train tells by what it did not
        ask for, and that nothing is new."""
        before = self.shape()
        self._n_asked += bool(domains)
        for name, domain in domains.items():
            if name in self.params:
                self.params[name] = self.params[name].again(domain)
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
        """The params that are drawn before a trial starts."""
        found = self.params.items() if self.is_stable else ()
        known = (SpaceParam(name, param.domain) for name, param in found if param.is_known)
        return SearchSpace((*self.written.params, *known))

    def lines(self) -> Iterator[str]:
        """YAML that could be written as the space, a line each."""
        for name, param in self.params.items():
            yield f"{_yaml_name(name)}: {_flow(param.domain)}{self._remark(param)}"

    def shape(self) -> Mapping[str, tuple[bool, bool]]:
        """Whose range varies and who is not in all trials: what stays the same from trial to trial
        once all was seen."""
        return {name: (param.varies, param.sometimes) for name, param in self.params.items()}

    def _remark(self, param: FoundParam) -> str:
        remarks = []
        if param.varies:
            remarks.append("its range depends on the other values")
        if param.sometimes:
            remarks.append(f"in {param.n_trials} of {self._n_asked} trials")
        return f"  # {'; '.join(remarks)}" if remarks else ""


def _hull(one: Domain, other: Domain) -> Domain:
    if not isinstance(one, RangeDomain) or not isinstance(other, RangeDomain):
        return one
    step = one.step if one.step == other.step else None
    return RangeDomain(min(one.low, other.low), max(one.high, other.high), one.log, step)


def _flow(domain: Domain) -> str:
    if isinstance(domain, ChoiceDomain):
        return f"{{choices: {json.dumps(list(domain.values))}}}"
    assert isinstance(domain, RangeDomain), "what is asked for is a range or a choice"
    log = ", log: true" if domain.log else ""
    step = "" if domain.step is None else f", step: {domain.step!r}"
    return f"{{low: {domain.low!r}, high: {domain.high!r}{log}{step}}}"


def _yaml_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)
