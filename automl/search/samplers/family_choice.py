"""Choose the kind (family of models) of the next trial; another sampler proposes the other params.

After rising bandits (Li et al., 2020, https://doi.org/10.1609/aaai.v34i04.5879): the best value of
a kind rises with its trials, ever more slowly, so the gain of its last trials bounds the gain of
the next ones. A kind whose bound is worse than the median trial of the leading kind is dropped. The
others share the trials by their bounds, because an ensemble gains from several kinds. Here the
bound looks as many trials ahead as the kind has had, since a study may be made longer.
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
"""The number of trials that each kind gets before any kind is dropped."""


@dataclass
class FamilyHistory:
    """The results of the trials of one kind, in the order of the trials."""

    keys: list[float] = field(default_factory=list)
    """The key of each trial; a lower one is better, and infinite means: no result, or none yet."""

    @property
    def best(self) -> float:
        return min(self.keys, default=math.inf)

    @property
    def expected_best(self) -> float:
        """The best key that as many further trials can reach, if they gain as the last ones did."""
        if not math.isfinite(self.best):
            return math.inf
        before = min(self.keys[:-N_FIRST], default=math.inf)
        if not math.isfinite(before):  # a first result is no gain
            before = max(key for key in self.keys if math.isfinite(key))
        return self.best - max(0.0, before - self.best) / N_FIRST * len(self.keys)

    @property
    def median(self) -> float:
        return statistics.median(self.keys)


def next_family(kinds: Sequence[str], histories: Mapping[str, FamilyHistory]) -> str:
    """Return the kind of the next trial; kinds with too few trials come first, in order."""
    n = {kind: len(histories[kind].keys) for kind in kinds}
    fewest = min(kinds, key=lambda kind: n[kind])
    if n[fewest] < N_FIRST:
        return fewest
    ranked = sorted(_survivors(kinds, histories), key=lambda kind: histories[kind].expected_best)
    shares = {kind: 1 / place for place, kind in enumerate(ranked, start=1)}
    return min(ranked, key=lambda kind: (n[kind] + 1) / shares[kind])


def _survivors(kinds: Sequence[str], histories: Mapping[str, FamilyHistory]) -> Sequence[str]:
    leading = min(kinds, key=lambda kind: histories[kind].best)
    median = histories[leading].median
    return [kind for kind in kinds if kind == leading or histories[kind].expected_best <= median]


def propose_by_expected_best(
    proposals: OpenSampler, search: SamplerInputs, choice: str
) -> OpenSampler:
    """Return proposals whose param `choice` is chosen by the best value that a kind may reach."""

    def choose_for(number: int) -> ChooseValue | None:
        from optuna.samplers import RandomSampler

        choose = proposals(number)
        if choose is None:
            return None
        study = search.open_study(RandomSampler())
        if len(study.directions) > 1:  # no kind has a best value: it is a param like any other
            return choose
        histories = _histories(study, choice)

        def choose_kind_too(param: SpaceParam) -> ParamValue:
            if param.name != choice:
                return choose(param)
            every = {str(value): value for value in param.domain.ends}
            in_time = {
                kind: value for kind, value in every.items() if kind not in search.slow_kinds
            }
            kinds = in_time or every  # an edit of the space may leave only slow ones
            known = {kind: histories.get(kind, FamilyHistory()) for kind in kinds}
            return kinds[next_family(tuple(kinds), known)]

        return choose_kind_too

    return choose_for


def _histories(study: Study, choice: str) -> dict[str, FamilyHistory]:
    histories: dict[str, FamilyHistory] = {}
    for trial in study.get_trials(deepcopy=False):
        if choice in trial.params and trial.number >= 0:  # those of earlier studies do not compare
            history = histories.setdefault(str(trial.params[choice]), FamilyHistory())
            history.keys.append(_key(study, trial))
    return histories


def _key(study: Study, trial: FrozenTrial) -> float:
    """Return the key of a trial, its value or else its best report; a lower one is better."""
    from optuna.study import StudyDirection

    if any(excess > 0 for excess in trial.constraints.values()):
        return math.inf
    sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
    values = [trial.value] if trial.value is not None else trial.intermediate_values.values()
    keys = [sign * value for value in values if math.isfinite(value)]
    return min(keys, default=math.inf)
