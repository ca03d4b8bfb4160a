"""Defines the event of an edit: what the owner of a study changed for further trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StudyEdited:
    """The owner of a study changed its space, its totals, its sampler or its pruner."""

    time: float
    id: str
    """The unique name of the edit; one that is repeated counts once."""
    user: str
    n_trials: int
    """The number of trials that the study had asked for before."""
    before: Mapping[str, str]
    """The changed settings as they were, as JSON by key (`space.lr`); those that were not there are
    missing."""
    after: Mapping[str, str]
    """The changed settings as they are from now on; those that were taken out are missing."""
    space_before: str = ""
    """The search space before, whole and as JSON; empty: the space did not change."""
    space: str = ""
    """The search space from now on, in the same form."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The values, as JSON, that earlier trials had of the params that were added."""
    undoes: str = ""
    """The `id` of the edit that this one takes back; empty: it takes none back."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is no JSON, which no sweep writes."""
        for values in (self.before, self.after, self.defaults):
            for text in values.values():
                json.loads(text)
