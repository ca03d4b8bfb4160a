"""Which trial of a study is the best: one rule, for a running sweep and for the record of any.

A trial is worth its best report, pruned or not, unless the objective returns its value: then what
a pruned trial reported compares with no other trial's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from automl.config import StudyConfig
from automl.trial import Direction, TrialState

NEAR = 0.01
"""A value so near to a trial's best report is that report. Not equal, because epochs that a trial
repeats after an interruption differ a little on a GPU, and a kill can lose the last report."""
RANKED = (TrialState.FINISHED, TrialState.PRUNED)
"""States in which a trial that has a value has a rank."""
Rank: TypeAlias = tuple[bool, float, bool, int]
"""Sorts trials, the best first."""


@dataclass(frozen=True)
class Metric:
    """What a study optimises."""

    name: str = StudyConfig.metric
    direction: Direction = Direction.minimize

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Metric:
        """As the flat settings of a sweep tell it; what they lack takes its default."""
        direction = Direction.__members__.get(settings.get("study.direction", ""), cls.direction)
        return cls(settings.get("study.metric", cls.name), direction)


def is_returned(value: float, best_report: float | None) -> bool:
    """Whether a finished trial's value is none that it reported: the objective returned it."""
    return best_report is None or not math.isclose(value, best_report, rel_tol=NEAR)


def rank(key: float, state: TrialState, number: int, *, returned: bool) -> Rank:
    """Of a trial worth `key`, of which less is better, in a study whose values are `returned`.

    Of equals finished ones come first, then those begun first.
    """
    pruned = state is TrialState.PRUNED
    return (returned and pruned, key, pruned, number)


def may_win(state: TrialState, *, returned: bool) -> bool:
    """Whether the first of a ranking is the best trial: a pruned one has no value to compare."""
    return not (returned and state is TrialState.PRUNED)
