"""Decides what follows when an execution ends without a result: the trial runs again, larger,
alone, or never.

Running out of memory is no failure until nothing larger is left to try and no other user is to
blame. A trial first gets 1.5 times its request, then the largest device alone. There it has to run
out twice while others hold about as little of it as they ever did.

`FailureStreak` says when so many trials fail alike that the sweep should stop.
`MeasuredMemoryForwarder` passes what trials were seen to hold on to later requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from automl.admission.measured_memory import MemoryTally
from automl.admission.memory_caps import may_settle
from automl.admission.refusals import AdmissionRefusal, RefusalKind, excess_after_out_of_memory
from automl.admission.requests import ALONE_AFTER_N_OOM, RequestMaker
from automl.running.loop.messages import (
    AdmittedExecution,
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
"""A trial that ran out of memory this many times, alone on an undisturbed device, fits on none."""
MAX_SAME_FAILURES = 10
"""This many failures in a row with one error stop the sweep."""


@dataclass
class FailureStreak:
    """Counts failures in a row with one error."""

    last: FailedOutcome | UnfitTrialFinding | None = None
    n_same: int = 0
    has_succeeded: bool = False
    """Whether a trial came to its end without a failure, so that the objective fits the config."""

    @property
    def last_cause(self) -> str | None:
        return None if self.last is None else self.last.cause

    def add(self, failed: FailedOutcome) -> bool:
        """Count a failure. Return whether the next trial would fail as well."""
        same = self.last is not None and self.last.cause == failed.cause
        self.n_same = self.n_same + 1 if same else 1
        self.last = failed
        return self.is_hopeless(failed) or self.n_same >= MAX_SAME_FAILURES

    def is_hopeless(self, failed: FailedOutcome | UnfitTrialFinding | None) -> bool:
        """Return whether any other trial would fail as well."""
        is_fault = isinstance(failed, FailedOutcome) and failed.hopeless
        return is_fault and not self.has_succeeded

    def ended(self) -> None:
        """Reset the count after a trial that came to its end without a failure."""
        self.has_succeeded = True
        self.n_same = 0


def retry_after_out_of_memory(
    waiting: WaitingTrial,
    execution: AdmittedExecution,
    outcome: OutOfMemoryOutcome,
    predicted_bytes: int | None = None,
) -> WaitingTrial | UnfitTrialFinding:
    """Return the trial as it waits again, or why it never fits.

    `predicted_bytes`: the predicted memory of a trial with its params.
    """
    if not execution.request.alone:
        return replace(waiting, may_pack=False, n_ran_out=waiting.n_ran_out + 1)
    if execution.disturbed:
        return replace(waiting, undisturbed=True)
    n_alone = waiting.n_alone + 1
    if n_alone < MAX_ALONE:
        return replace(waiting, n_alone=n_alone)
    share = min(execution.placement.shares, key=lambda share: share.reservation_bytes)
    return UnfitTrialFinding(
        f"does not fit, even alone on {share.device_name}: {outcome.cause}",
        *excess_after_out_of_memory(execution.peak_bytes, predicted_bytes, share.reservation_bytes),
    )


def retry_after_death(
    waiting: WaitingTrial, outcome: InterruptedOutcome, *, drained: bool
) -> WaitingTrial | str:
    """Return the trial as it waits again after its process died, or why it has failed.

    `drained`: its device had failed, which then is the cause of the death.
    """
    if drained:
        return waiting
    deaths = waiting.deaths + 1
    if deaths < MAX_DEATHS:
        return replace(waiting, may_pack=False, deaths=deaths)
    return f"{outcome.cause} ({deaths} times)"


def retry_after_final_refusal(
    waiting: WaitingTrial, request: ResourceRequest, refusal: AdmissionRefusal
) -> WaitingTrial | UnfitTrialFinding | str:
    """Return what becomes of a trial whose request is larger than every device.

    If the request is a prediction, or has grown since, the trial is tried alone.
    """
    assert refusal.kind is RefusalKind.NEVER
    if refusal.excess is None:  # there are no such devices, whatever the size of the request
        return refusal.reason
    if request.source is RequestSource.DECLARED:  # the user's own word
        return UnfitTrialFinding(f"does not fit: {refusal.reason}", refusal.excess)
    return replace(waiting, n_ran_out=ALONE_AFTER_N_OOM)


@dataclass
class MeasuredMemoryForwarder:
    """Passes the measured memory of trials on to later requests. For the main thread."""

    requests: RequestMaker
    placing: TrialPlacer
    tally: MemoryTally

    def measured(self, peak: MemoryPeakMeasured, execution: AdmittedExecution) -> None:
        """Take the memory that a trial, or its pack, held."""
        kind = execution.placement.kind
        self.requests.learn(execution.members[peak.trial].trial.params, peak, kind)
        execution.peak_bytes = max(execution.peak_bytes, peak.peak_bytes)
        if kind is DeviceKind.GPU and peak.n_lanes == 1:
            self.tally.measured(peak, execution.request)

    def ran_out(
        self, waiting: WaitingTrial, execution: AdmittedExecution, outcome: OutOfMemoryOutcome
    ) -> WaitingTrial | UnfitTrialFinding:
        """Return how the trial waits again, or why it never fits."""
        asked = execution.request.memory_bytes
        if asked is None and may_settle(execution.request, execution.placement, execution.n_lanes):
            asked = execution.peak_bytes or None  # the reservation was settled at the peak
        if asked is not None and execution.kind is None:
            self.requests.ran_out(waiting.trial.params, asked, execution.placement.kind)
        predicted = self.placing.request(replace(waiting, n_ran_out=0)).memory_bytes
        return retry_after_out_of_memory(waiting, execution, outcome, predicted)
