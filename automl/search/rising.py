"""Which of several kinds of trials (families of models) the next one is of.

After rising bandits (Li et al., 2020, https://doi.org/10.1609/aaai.v34i04.5879): the best value of
a kind rises with its trials, ever more slowly, so what the last ones gained bounds what the next
ones can. A kind that even so stays behind what a middling trial of the leading one has is dropped;
the others share the trials by what they promise, which an ensemble of several is the better for.
Here the bound looks as many trials ahead as the kind has had, since a study may be made longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

N_FIRST = 3
"""Trials that each kind gets before any is dropped."""


@dataclass
class Course:
    """The trials of one kind, in their order."""

    keys: list[float] = field(default_factory=list)
    """What each came to, the lower the better; infinite: to nothing yet, or at all."""

    @property
    def best(self) -> float:
        return min(self.keys, default=math.inf)

    @property
    def promise(self) -> float:
        """The best key that as many trials again can reach, if they gain as the last ones did."""
        if not math.isfinite(self.best):
            return math.inf
        before = min(self.keys[:-N_FIRST], default=math.inf)
        if not math.isfinite(before):  # gains that nothing was before say nothing
            before = max(key for key in self.keys if math.isfinite(key))
        return self.best - max(0.0, before - self.best) / N_FIRST * len(self.keys)

    @property
    def middling(self) -> float:
        return statistics.median(self.keys)


def next_kind(kinds: Sequence[str], courses: Mapping[str, Course]) -> str:
    """The kind of the next trial; those with too few come first, in the order of `kinds`."""
    n = {kind: len(courses[kind].keys) for kind in kinds}
    fewest = min(kinds, key=lambda kind: n[kind])
    if n[fewest] < N_FIRST:
        return fewest
    ranked = sorted(_survivors(kinds, courses), key=lambda kind: courses[kind].promise)
    shares = {kind: 1 / place for place, kind in enumerate(ranked, start=1)}
    return min(ranked, key=lambda kind: (n[kind] + 1) / shares[kind])


def _survivors(kinds: Sequence[str], courses: Mapping[str, Course]) -> Sequence[str]:
    leading = min(kinds, key=lambda kind: courses[kind].best)
    middling = courses[leading].middling
    return [kind for kind in kinds if kind == leading or courses[kind].promise <= middling]
