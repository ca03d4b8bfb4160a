"""From the moments at which steps ended to the time of a step and of a whole trial. Pure.

A machine that is shared stalls a process now and then, so times are medians. Of single steps these
would miss the stalls that every long stretch has, so they are taken over stretches
(`ROUND_SECONDS`) that are longer than a time slice of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

ROUND_SECONDS = 0.05


@dataclass(frozen=True)
class Call:
    """One execution of a trial (or pack), seconds on one clock."""

    begun: float
    passes: tuple[tuple[float, ...], ...]
    """When each step ended, a tuple for each epoch; an epoch may have been cut short."""
    ended: float
    """With its checkpoints written."""
    whole: bool = False
    """It ran to its end by itself."""


def step_seconds(calls: Sequence[Call]) -> float | None:
    """From the end of a step to that of the next; None: fewer than two were seen."""
    within = [(p[-1] - p[0], len(p) - 1) for call in calls for p in call.passes if len(p) > 1]
    return _rate(within or _between(calls))


def trial_seconds(calls: Sequence[Call], n_epochs: int, n_steps: int) -> float | None:
    """A trial of so many epochs of so many steps, its start, looks at the validation part, reports
    and checkpoints included; None: too little was seen."""
    seen = [call for call in calls if any(call.passes)]
    step = step_seconds(seen)
    if step is None:
        return None
    lead = median(_first(call) - call.begun for call in seen)
    tail = median(call.ended - _last(call) for call in seen)
    between = _rate(_between(seen))
    if between is None:
        between = tail + step  # of one epoch only: its end had a look and a report, too
    return lead + n_epochs * (n_steps - 1) * step + (n_epochs - 1) * between + tail


def whole_seconds(calls: Sequence[Call]) -> float | None:
    """A trial that was seen from its start to its end; None: none was."""
    return median(s) if (s := [call.ended - call.begun for call in calls if call.whole]) else None


def _between(calls: Sequence[Call]) -> list[tuple[float, int]]:
    """From the last step of an epoch to the first of the next."""
    filled = [[p for p in call.passes if p] for call in calls]
    return [(b[0] - a[-1], 1) for passes in filled for a, b in pairwise(passes)]


def _rate(stretches: Iterable[tuple[float, int]]) -> float | None:
    """Seconds apiece of (seconds, count): the median over rounds; None: there are none."""
    rounds: list[float] = []
    seconds, n = 0.0, 0
    for more_seconds, more in stretches:
        seconds, n = seconds + more_seconds, n + more
        if seconds >= ROUND_SECONDS:
            rounds.append(seconds / n)
            seconds, n = 0.0, 0
    if not rounds and n:
        rounds.append(seconds / n)
    return median(rounds) if rounds else None


def _first(call: Call) -> float:
    return next(p[0] for p in call.passes if p)


def _last(call: Call) -> float:
    return next(p[-1] for p in reversed(call.passes) if p)
