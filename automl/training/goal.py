"""What a trial is judged by."""

from __future__ import annotations

from dataclasses import dataclass

from automl.trial import Direction


@dataclass(frozen=True)
class Goal:
    """What the study optimises, over which params."""

    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space; a trial may lack those whose `when` is not met."""
    keeps_last: bool = False
    """The last report is the best."""
    at_end: bool = False
    """The value is told at the end, with the model: reports are for pruning alone, and a trial that
    is pruned has no value."""
