"""The kind of a trial by what each kind promises (`rising.py`), the rest as a sampler proposes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from automl.search.rising import Course, next_kind
from automl.search.samplers.sampler import Choose, Proposals, Search
from automl.search.space import Param
from automl.trial import ParamValue

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


def by_promise(proposals: Proposals, search: Search, choice: str) -> Proposals:
    """Proposals whose param `choice` goes by promise."""

    def choose_for(number: int) -> Choose | None:
        choose = proposals(number)
        if choose is None:
            return None
        courses = _courses(search, choice)

        def choose_kind_too(param: Param) -> ParamValue:
            if param.name != choice:
                return choose(param)
            kinds = {str(value): value for value in param.domain.ends}
            known = {kind: courses.get(kind, Course()) for kind in kinds}
            return kinds[next_kind(tuple(kinds), known)]

        return choose_kind_too

    return choose_for


def _courses(search: Search, choice: str) -> dict[str, Course]:
    from optuna.samplers import RandomSampler

    study = search.open_study(RandomSampler())
    courses: dict[str, Course] = {}
    for trial in study.get_trials(deepcopy=False):
        if choice in trial.params:
            course = courses.setdefault(str(trial.params[choice]), Course())
            course.keys.append(_key(study, trial))
    return courses


def _key(study: Study, trial: FrozenTrial) -> float:
    """What a trial is worth, the lower the better: its value, else its best report."""
    from optuna.study import StudyDirection

    sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
    values = [trial.value] if trial.value is not None else trial.intermediate_values.values()
    keys = [sign * value for value in values if math.isfinite(value)]
    return min(keys, default=math.inf)
