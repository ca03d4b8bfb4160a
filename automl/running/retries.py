"""What becomes of a trial whose execution ended without a result: again, larger, alone, or never;
and when so many fail alike that the sweep had better stop.

Pure but for the streak. Running out of memory is no failure until there is nothing larger to try
and nobody else to blame: 1.5 times the request, then the largest device alone, where it has to run
out twice while others hold about as little of it as they ever did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from automl.admission.excess import excess_of_ran_out
from automl.admission.reasons import Refusal, RefusalKind
from automl.admission.requests import ALONE_AFTER
from automl.running.messages import DoesNotFit, Execution, Waiting
from automl.trial import Failed, Interrupted, OutOfMemory, Request, RequestSource

MAX_DEATHS = 2
"""A trial under which this many processes died has failed."""
MAX_ALONE = 2
"""Times it ran out of memory with a device to itself and nobody to blame: it fits on none."""
MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


@dataclass
class Streak:
    """Failures in a row with one error."""

    last: Failed | DoesNotFit | None = None
    n_same: int = 0

    def add(self, failed: Failed) -> bool:
        """Count one; whether the next trial would fail as well."""
        same = self.last is not None and self.last.cause == failed.cause
        self.n_same = self.n_same + 1 if same else 1
        self.last = failed
        return failed.hopeless or self.n_same >= MAX_SAME_FAILURES

    def ended(self) -> None:
        """A trial came to its end without a failure."""
        self.n_same = 0


def after_out_of_memory(
    waiting: Waiting, was: Execution, outcome: OutOfMemory, predicted_bytes: int | None = None
) -> Waiting | DoesNotFit:
    """The trial as it waits again, or why it never fits. `predicted_bytes`: what a trial of its
    params is thought to want."""
    if not was.request.alone:
        return replace(waiting, may_pack=False, n_ran_out=waiting.n_ran_out + 1)
    if was.disturbed:
        return replace(waiting, undisturbed=True)
    n_alone = waiting.n_alone + 1
    if n_alone < MAX_ALONE:
        return replace(waiting, n_alone=n_alone)
    share = min(was.placement.shares, key=lambda share: share.reservation_bytes)
    return DoesNotFit(
        f"does not fit, even alone on {share.device_name}: {outcome.cause}",
        *excess_of_ran_out(was.peak_bytes, predicted_bytes, share.reservation_bytes),
    )


def after_death(waiting: Waiting, outcome: Interrupted, *, drained: bool) -> Waiting | str:
    """The same for one whose process died under it; `drained`: its device had failed, whose fault
    it is then."""
    if drained:
        return waiting
    deaths = waiting.deaths + 1
    if deaths < MAX_DEATHS:
        return replace(waiting, may_pack=False, deaths=deaths)
    return f"{outcome.cause} ({deaths} times)"


def after_refusal_for_good(
    waiting: Waiting, request: Request, refusal: Refusal
) -> Waiting | DoesNotFit | str:
    """The same for one whose request is larger than every device: what was only predicted, or has
    grown, is tried alone."""
    assert refusal.kind is RefusalKind.NEVER
    if refusal.excess is None:  # there are no such devices, whatever it wants of them
        return refusal.reason
    if request.source is RequestSource.DECLARED:  # the user's own word
        return DoesNotFit(f"does not fit: {refusal.reason}", refusal.excess)
    return replace(waiting, n_ran_out=ALONE_AFTER)
