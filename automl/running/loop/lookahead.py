"""Finds the trials behind the head that may start before it, and keeps the promise made to the
head."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from automl.admission.backfill import (
    PlacementSituation,
    StartPromise,
    find_overtaking,
    promise_start,
)
from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.running.loop.messages import ExecutionStart, WaitingTrial
from automl.running.loop.packing import PackPlanner, TrialDurations
from automl.running.loop.placing import TrialPlacer
from automl.trial import Placement, ResourceRequest

LIKELY = 0.5
"""Required probability that a trial of unknown duration ends in time, if it is to pass a head that
wants one device. A head that wants several devices leaves as many idle, while a delay costs it no
more. The probability is then divided by their number (experiments/006-packing/several.md)."""


@dataclass
class QueueBackfill:
    """Lets other trials pass the head of the queue. For the main thread."""

    n_ahead: int
    """Number of trials looked at behind the head. With 0, no trial passes it."""
    durations: TrialDurations
    placing: TrialPlacer
    packing: PackPlanner
    promised: StartPromise | None = None
    """Start promised to the head, by what is known now."""
    until_seconds: float = math.inf
    """Earliest start that the head was ever promised. From then on no trial passes it."""
    _head: int | None = None
    _seen: Hashable = None

    def is_open(self, head: WaitingTrial, request: ResourceRequest, now_seconds: float) -> bool:
        """Return whether others may pass the head, which has to wait for memory.

        They may if the last reading shows all memory that was given back, something has room, and
        the promised time is known and has not come. They may not if nothing has changed since the
        last call.
        """
        if not (self.n_ahead and self.placing.shows_the_last_end):
            return False
        reading = self.placing.reading
        seen = reading and reading.begun_seconds, tuple(self.placing.executions), head.trial.number
        if seen == self._seen:
            return False
        self._seen = seen
        if isinstance(self.placing.place(self.placing.least, now_seconds), AdmissionRefusal):
            return False
        if head.trial.number != self._head:
            self._head, self.until_seconds = head.trial.number, math.inf
        return self._promise(request, now_seconds)

    def passing(
        self,
        behind: Sequence[WaitingTrial],
        head: ResourceRequest,
        now_seconds: float,
        fair: Callable[[list[WaitingTrial], int], list[WaitingTrial]],
    ) -> Iterator[ExecutionStart]:
        """Yield starts among the first trials behind the head, larger ones first, as packs with
        trials of their kind.

        Each has been started before the next is looked at. Trials whose survey is not over are left
        for a later reading.
        """
        requests = {w.trial.number: self.placing.known_request(w) for w in behind[: self.n_ahead]}
        sizes = {number: _size(known) for number, known in requests.items() if known is not None}
        near = [w for w in behind[: self.n_ahead] if w.trial.number in sizes]
        now = self._situation(now_seconds)

        def start(
            first: WaitingTrial, near: Sequence[WaitingTrial]
        ) -> ExecutionStart | AdmissionRefusal:
            nonlocal now
            if now.reading is not self.placing.reading:  # other sweeps have promised more
                now = self._situation(now_seconds)
            return self._start(first, near, head, now, fair)

        for first in sorted(near, key=lambda w: sizes[w.trial.number], reverse=True):
            if first not in near:
                continue  # it started in the pack of another trial
            decide = partial(start, first, near)
            found = self.placing.agreed(decide, now_seconds)
            if isinstance(found, ExecutionStart):
                near = [w for w in near if w not in found.group]
                yield found
                now = self._situation(now_seconds)

    def _promise(self, request: ResourceRequest, now_seconds: float) -> bool:
        self.promised = promise_start(request, self._situation(now_seconds))
        if self.promised is None:
            return False
        self.until_seconds = min(self.until_seconds, self.promised.at_seconds)
        return now_seconds < self.until_seconds

    def _start(
        self,
        first: WaitingTrial,
        near: Sequence[WaitingTrial],
        head: ResourceRequest,
        now: PlacementSituation,
        fair: Callable[[list[WaitingTrial], int], list[WaitingTrial]],
    ) -> ExecutionStart | AdmissionRefusal:
        assert self.promised is not None, "others pass a head only if it was promised a start"
        promised, share = self.promised, LIKELY / head.n_devices

        def place(
            request: ResourceRequest, group: Sequence[WaitingTrial]
        ) -> Placement | AdmissionRefusal:
            seconds = max(self.durations.of(waiting, share) for waiting in group)
            found = find_overtaking(request, self.placing.next_key, seconds, head, promised, now)
            return found or AdmissionRefusal("it would delay the head", RefusalKind.FULL)

        request = self.placing.request(first)
        decision = place(request, [first])
        if isinstance(decision, AdmissionRefusal):
            return decision
        others = [first, *(w for w in near if w is not first)]
        group = self.packing.group(first, others, lambda: None, on_host=decision.on_host)
        group = fair(group, len(near))
        return self.packing.placed(group, request, decision, lambda pack: place(pack, group))

    def _situation(self, now_seconds: float) -> PlacementSituation:
        executions = self.placing.executions.items()
        ends = {key: self.durations.end(execution, now_seconds) for key, execution in executions}
        return self.placing.situation(now_seconds, ends)


def _size(request: ResourceRequest) -> float:
    return math.inf if request.memory_bytes is None else request.memory_bytes
