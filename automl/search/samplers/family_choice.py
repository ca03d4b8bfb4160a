"""The kind of a trial by what each kind promises (`family_choice.py`), the rest as a sampler
proposes.

Which of several kinds of trials (families of models) the next one is of.

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
from typing import TYPE_CHECKING

from automl.search.samplers.sampler import ChooseValue, OpenSampler, SamplerInputs
from automl.search.search_space import SpaceParam
from automl.trial import ParamValue

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

N_FIRST = 3
"""Trials that each kind gets before any is dropped."""


@dataclass
class FamilyHistory:
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


def next_family(kinds: Sequence[str], courses: Mapping[str, FamilyHistory]) -> str:
    """The kind of the next trial; those with too few come first, in the order of `kinds`."""
    n = {kind: len(courses[kind].keys) for kind in kinds}
    fewest = min(kinds, key=lambda kind: n[kind])
    if n[fewest] < N_FIRST:
        return fewest
    ranked = sorted(_survivors(kinds, courses), key=lambda kind: courses[kind].promise)
    shares = {kind: 1 / place for place, kind in enumerate(ranked, start=1)}
    return min(ranked, key=lambda kind: (n[kind] + 1) / shares[kind])


def _survivors(kinds: Sequence[str], courses: Mapping[str, FamilyHistory]) -> Sequence[str]:
    leading = min(kinds, key=lambda kind: courses[kind].best)
    middling = courses[leading].middling
    return [kind for kind in kinds if kind == leading or courses[kind].promise <= middling]


def propose_by_promise(proposals: OpenSampler, search: SamplerInputs, choice: str) -> OpenSampler:
    """Proposals whose param `choice` goes by promise."""

    def choose_for(number: int) -> ChooseValue | None:
        choose = proposals(number)
        if choose is None:
            return None
        courses = _courses(search, choice)

        def choose_kind_too(param: SpaceParam) -> ParamValue:
            if param.name != choice:
                return choose(param)
            kinds = {str(value): value for value in param.domain.ends}
            known = {kind: courses.get(kind, FamilyHistory()) for kind in kinds}
            return kinds[next_family(tuple(kinds), known)]

        return choose_kind_too

    return choose_for


def _courses(search: SamplerInputs, choice: str) -> dict[str, FamilyHistory]:
    from optuna.samplers import RandomSampler

    study = search.open_study(RandomSampler())
    courses: dict[str, FamilyHistory] = {}
    for trial in study.get_trials(deepcopy=False):
        if choice in trial.params:
            course = courses.setdefault(str(trial.params[choice]), FamilyHistory())
            course.keys.append(_key(study, trial))
    return courses


def _key(study: Study, trial: FrozenTrial) -> float:
    """What a trial is worth, the lower the better: its value, else its best report."""
    from optuna.study import StudyDirection

    sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
    values = [trial.value] if trial.value is not None else trial.intermediate_values.values()
    keys = [sign * value for value in values if math.isfinite(value)]
    return min(keys, default=math.inf)
