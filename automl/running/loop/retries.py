"""What becomes of a trial whose execution ended without a result: again, larger, alone, or never;
and when so many fail alike that the sweep had better stop.

Pure but for the streak. Running out of memory is no failure until there is nothing larger to try
and nobody else to blame: 1.5 times the request, then the largest device alone, where it has to run
out twice while others hold about as little of it as they ever did.

What trials were seen to hold of memory, and ran out of: requests of those to come know it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from automl.admission.measured_memory import MemoryTally
from automl.admission.memory_caps import may_settle
from automl.admission.refusals import AdmissionRefusal, RefusalKind, excess_after_out_of_memory
from automl.admission.requests import ALONE_AFTER, RequestMaker
from automl.running.loop.messages import (
    AdmittedExecution,
    RunningTrial,
    UnfitTrialFinding,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.trial import (
    DeviceKind,
    FailedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    OutOfMemoryOutcome,
    RequestSource,
    ResourceRequest,
)

MAX_DEATHS = 2
"""A trial under which this many processes died has failed."""
MAX_ALONE = 2
"""Times it ran out of memory with a device to itself and nobody to blame: it fits on none."""
MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


@dataclass
class FailureStreak:
    """Failures in a row with one error."""

    last: FailedOutcome | UnfitTrialFinding | None = None
    n_same: int = 0

    def add(self, failed: FailedOutcome) -> bool:
        """Count one; whether the next trial would fail as well."""
        same = self.last is not None and self.last.cause == failed.cause
        self.n_same = self.n_same + 1 if same else 1
        self.last = failed
        return failed.hopeless or self.n_same >= MAX_SAME_FAILURES

    def ended(self) -> None:
        """A trial came to its end without a failure."""
        self.n_same = 0


def retry_after_out_of_memory(
    waiting: WaitingTrial,
    was: AdmittedExecution,
    outcome: OutOfMemoryOutcome,
    predicted_bytes: int | None = None,
) -> WaitingTrial | UnfitTrialFinding:
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
    return UnfitTrialFinding(
        f"does not fit, even alone on {share.device_name}: {outcome.cause}",
        *excess_after_out_of_memory(was.peak_bytes, predicted_bytes, share.reservation_bytes),
    )


def retry_after_death(
    waiting: WaitingTrial, outcome: InterruptedOutcome, *, drained: bool
) -> WaitingTrial | str:
    """The same for one whose process died under it; `drained`: its device had failed, whose fault
    it is then."""
    if drained:
        return waiting
    deaths = waiting.deaths + 1
    if deaths < MAX_DEATHS:
        return replace(waiting, may_pack=False, deaths=deaths)
    return f"{outcome.cause} ({deaths} times)"


def retry_after_final_refusal(
    waiting: WaitingTrial, request: ResourceRequest, refusal: AdmissionRefusal
) -> WaitingTrial | UnfitTrialFinding | str:
    """The same for one whose request is larger than every device: what was only predicted, or has
    grown, is tried alone."""
    assert refusal.kind is RefusalKind.NEVER
    if refusal.excess is None:  # there are no such devices, whatever it wants of them
        return refusal.reason
    if request.source is RequestSource.DECLARED:  # the user's own word
        return UnfitTrialFinding(f"does not fit: {refusal.reason}", refusal.excess)
    return replace(waiting, n_ran_out=ALONE_AFTER)


@dataclass
class MemoryObservations:
    """Learns for the loop. For the main thread."""

    requests: RequestMaker
    placing: TrialPlacer
    tally: MemoryTally

    def measured(
        self, peak: MemoryPeakMeasured, running: RunningTrial, execution: AdmittedExecution
    ) -> None:
        """A trial, or its pack, held so much."""
        params, kind = running.waiting.trial.params, running.placement.kind
        self.requests.learn(params, peak, kind)
        execution.peak_bytes = max(execution.peak_bytes, peak.peak_bytes)
        if kind is DeviceKind.GPU and peak.n_lanes == 1:
            self.tally.measured(peak, execution.request)

    def ran_out(
        self, waiting: WaitingTrial, was: AdmittedExecution, outcome: OutOfMemoryOutcome
    ) -> WaitingTrial | UnfitTrialFinding:
        """How it waits again, or why it never fits."""
        asked = was.request.memory_bytes
        if asked is None and may_settle(was.request, was.placement, was.n_lanes):
            asked = was.peak_bytes or None  # it was promised what it was seen to hold
        if asked is not None and was.kind is None:
            self.requests.ran_out(waiting.trial.params, asked, was.placement.kind)
        predicted = self.placing.request(replace(waiting, n_ran_out=0)).memory_bytes
        return retry_after_out_of_memory(waiting, was, outcome, predicted)
