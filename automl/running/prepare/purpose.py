"""The two purposes of a sweep, a search or a final training, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SweepPurpose:
    """Says what a sweep does or leaves out because of its purpose."""

    checks_choices: bool
    """Whether files, enqueued params and batch sizes are checked. Those of a final training are of
    a study that was searched."""
    explains_choices: bool
    """Whether lines for people tell what was found in the data and in the settings."""
    uses_portfolio: bool
    """Whether the points that did well elsewhere are tried first."""
    checks_tracking: bool
    """Whether faults of MLflow that would hit each trial are looked for before the first one."""
    tells_of_repeats: bool
    """Whether params that were tried before are told. Trials of a final training differ in their
    seeds and rows."""
    stops_in_time: bool
    """Whether running trials stop when the time is up, even if no trial has a result yet: an
    unfinished final training is of no use later."""
    stands_alone: bool
    """Whether the study has a page, scores and a model file of its own. Those of a final training
    are of the study whose winner it trains."""


SEARCH = SweepPurpose(
    checks_choices=True,
    explains_choices=True,
    uses_portfolio=True,
    checks_tracking=True,
    tells_of_repeats=True,
    stops_in_time=False,
    stands_alone=True,
)
FINAL_TRAINING = SweepPurpose(
    checks_choices=False,
    explains_choices=False,
    uses_portfolio=False,
    checks_tracking=False,
    tells_of_repeats=False,
    stops_in_time=True,
    stands_alone=False,
)
