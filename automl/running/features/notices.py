"""Words messages about trials: deaths, too little memory, repeated params.

They are for people only; no decision depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

from automl.admission.refusals import gib_text
from automl.admission.requests import OOM_GROWTH, SEEN_PEAK_MARGIN
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.running.loop.messages import AdmittedExecution
from automl.running.loop.retries import MAX_DEATHS
from automl.trial import (
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    Params,
    RequestSource,
    TrialOutcome,
)


def interruption_line(
    outcome: TrialOutcome,
    execution: AdmittedExecution,
    *,
    is_stopping: bool = False,
    shown: Callable[[int], int] = int,
) -> str | None:
    """Return what is said of a trial that was interrupted through no fault of the user, or None.

    A trial whose process died goes on in another unless the sweep stops or this was its last
    allowed death. `shown` gives the number by which people know a trial.
    """
    match outcome:
        case InterruptedOutcome(trial=number, cause=cause, by_worker_death=True):
            line = f"trial {shown(number)}: {cause}"
            deaths = execution.members[number].deaths + 1
            if deaths >= MAX_DEATHS:
                return f"{line} (death {deaths} of {MAX_DEATHS})"
            return line if is_stopping else f"{line}; it goes on in another"
        case InterruptedOutcome(trial=number, cause=cause, lease_ended=True):
            return f"trial {shown(number)} ended: {cause}; it goes on where it is not lost"
        case InterruptedOutcome(trial=number, cause=cause, pack_dissolved=True):
            return f"trial {shown(number)} goes on alone: {cause}"
    return None


class DeclaredMemoryAdvice:
    """Says what to declare when memory runs out within the user's declared size."""

    def __init__(self) -> None:
        self._said_bytes = 0

    def line(self, outcome: TrialOutcome, execution: AdmittedExecution) -> str | None:
        """Return the advice, or None.

        The advice is repeated only for a larger size. There is none if others took the memory, or
        for a pack, whose trials go on alone.
        """
        if not isinstance(outcome, OutOfMemoryOutcome):
            return None
        declared, held = execution.request.memory_bytes, execution.peak_bytes
        if declared is None or execution.request.source is not RequestSource.DECLARED:
            return None
        if execution.n_lanes > 1 or execution.disturbed:
            return None
        enough = math.ceil(max(OOM_GROWTH * declared, SEEN_PEAK_MARGIN * held))
        if enough <= self._said_bytes:
            return None
        self._said_bytes = enough
        seen = f", it held {gib_text(held)} by then" if held > declared else ""
        return (
            f"trial {outcome.trial} ran out of memory: admission.request={_mib(declared)} is too "
            f"little for it{seen}; declare admission.request={_mib(enough)}. It runs again with "
            "more"
        )


def _mib(size_bytes: int) -> str:
    """A size as it is declared, rounded up."""
    return f"{math.ceil(size_bytes / 2**20)}MiB"


class ReturnedValues:
    """Finds the first trial of a study that returned another value than it reported."""

    def __init__(self, earlier: Iterable[TrialRecord]) -> None:
        """`earlier` are the trials of earlier sweeps."""
        self._is_told = any(trial.reported for trial in earlier)

    def line(self, outcome: TrialOutcome, metric: str) -> str | None:
        """Return what to say of a trial that has ended; None: nothing, or the user was told.

        `metric` is the study's metric; of several the leading one.
        """
        if self._is_told or not isinstance(outcome, FinishedOutcome) or not outcome.reported:
            return None
        self._is_told = True
        name, reported = next(iter(outcome.reported.items()))
        returned = {metric: outcome.value, **outcome.values}[name]
        return (
            f"trial {outcome.trial} returned {fit_line(name)} {returned:.6g}, and its best report "
            f"has {reported:.6g} (further trials are not listed). The returned number is the "
            "trial's value, by which trials rank and the sampler learns; curves, pruning and "
            "the kept model go by reports. To have the best report as the value, return None; to "
            "have one number everywhere, report what is returned"
        )


class RepeatedParams:
    """Finds the first trial whose params an earlier trial of the study had, in a space of few."""

    def __init__(self, trials: Iterable[Params]) -> None:
        """`trials` are those of the study so far, by number."""
        self._first_by_params: dict[Hashable, int] = {}
        self._is_told = False
        for number, params in enumerate(trials):
            self._first_by_params.setdefault(frozenset(params.items()), number)

    def line(self, number: int, params: Params) -> str | None:
        """Return what to say of a new trial; None: its params are new, or repeats were told of."""
        first = self._first_by_params.setdefault(frozenset(params.items()), number)
        if first == number or self._is_told:
            return None
        self._is_told = True
        return (
            f"trial {number} has the params of trial {first} and trains them again, with its own "
            "seed (further repeats are not listed); the grid sampler (sampler=grid) tries each "
            "combination once"
        )
