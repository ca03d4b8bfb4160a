"""The search space of an objective written for Optuna, discovered from its trials. Pure.

Such an objective asks for each param while it runs, and may ask for other params in the next trial.
Once `N_ALIKE_TRIALS` trials in a row asked for the same params, the params that all trials have,
over the same range, are known: they are drawn before a trial starts, as if they had been written. A
param that some trials lack, or whose range depends on other values, is asked for in each trial.

Drawing the values is done in `param_suggestions.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from automl.search.domains import ChoiceDomain, Domain, RangeDomain
from automl.search.search_space import SearchSpace, SpaceParam

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
            domain=_hull(self.domain, domain),
            n_trials=self.n_trials + 1,
            varies=self.varies or domain != self.domain,
        )


class FoundSpace:
    """Folds the ended trials of a study into the space that their objective asks for."""

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
            remarks.append(f"in {param.n_trials} of {self._n_asked} trials")
        return f"  # {'; '.join(remarks)}" if remarks else ""


def _hull(a: Domain, b: Domain) -> Domain:
    if not isinstance(a, RangeDomain) or not isinstance(b, RangeDomain):
        return a
    step = a.step if a.step == b.step else None
    return RangeDomain(min(a.low, b.low), max(a.high, b.high), a.log, step)


def _yaml_domain(domain: Domain) -> str:
    if isinstance(domain, ChoiceDomain):
        return f"{{choices: {json.dumps(list(domain.values))}}}"
    assert isinstance(domain, RangeDomain), "objectives ask for ranges and choices only"
    log = ", log: true" if domain.log else ""
    step = "" if domain.step is None else f", step: {domain.step!r}"
    return f"{{low: {domain.low!r}, high: {domain.high!r}{log}{step}}}"


def _yaml_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)
