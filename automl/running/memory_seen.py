"""What trials were seen to hold of memory, and ran out of: requests of those to come know it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from automl.admission.requests import Requests
from automl.admission.settling import may_settle
from automl.admission.summary import MemoryTally
from automl.running.messages import DoesNotFit, Execution, Running, Waiting
from automl.running.placing import Placing
from automl.running.retries import after_out_of_memory
from automl.trial import DeviceKind, MemoryPeak, OutOfMemory


@dataclass
class MemorySeen:
    """Learns for the loop. For the main thread."""

    requests: Requests
    placing: Placing
    tally: MemoryTally

    def measured(self, peak: MemoryPeak, running: Running, execution: Execution) -> None:
        """A trial, or its pack, held so much."""
        params, kind = running.waiting.trial.params, running.placement.kind
        self.requests.learn(params, peak, kind)
        execution.peak_bytes = max(execution.peak_bytes, peak.peak_bytes)
        if kind is DeviceKind.GPU and peak.n_lanes == 1:
            self.tally.measured(peak, execution.request)

    def ran_out(
        self, waiting: Waiting, was: Execution, outcome: OutOfMemory
    ) -> Waiting | DoesNotFit:
        """How it waits again, or why it never fits."""
        asked = was.request.memory_bytes
        if asked is None and may_settle(was.request, was.placement, was.n_lanes):
            asked = was.peak_bytes or None  # it was promised what it was seen to hold
        if asked is not None and was.kind is None:
            self.requests.ran_out(waiting.trial.params, asked, was.placement.kind)
        predicted = self.placing.request(replace(waiting, n_ran_out=0)).memory_bytes
        return after_out_of_memory(waiting, was, outcome, predicted)
