"""Decides which waiting trials start together as one pack, and which may take a free lane of a
running one.

`TrialDurations` estimates how long trials take. The estimate is rough, and backfill needs no more.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from automl.admission.refusals import AdmissionRefusal
from automl.admission.requests import RequestMaker
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    WaitingTrial,
)
from automl.running.loop.ports import TrialSupply
from automl.trial import DeviceKind, PackKind, Placement, ResourceRequest


@dataclass
class PackPlanner:
    """Knows the pack kinds of the waiting trials. For the main thread."""

    trials: TrialSupply
    requests: RequestMaker
    _kinds: dict[tuple[int, bool], PackKind | None] = field(default_factory=dict)
    """Pack kind by trial number and whether the trial is on the host. Each is asked for once."""

    def kind(self, waiting: WaitingTrial, *, on_host: bool) -> PackKind | None:
        """Return the pack kind of the trial on the host or a GPU. None if it trains alone there."""
        key = (waiting.trial.number, on_host)
        if waiting.may_pack and key not in self._kinds:
            self._kinds[key] = self.trials.kind_of(waiting.trial, on_host=on_host)
        return self._kinds[key] if waiting.may_pack else None

    def started(self, number: int) -> None:
        """Forget the kinds of a trial that waits no more."""
        for on_host in (True, False):
            self._kinds.pop((number, on_host), None)

    def request(self, members: Sequence[WaitingTrial], kind: DeviceKind) -> ResourceRequest:
        """Return what the trials ask for as one pack."""
        return self.requests.request_for_pack([waiting.trial.params for waiting in members], kind)

    def group(
        self,
        first: WaitingTrial,
        waiting: Iterable[WaitingTrial],
        one_more: Callable[[], WaitingTrial | None],
        *,
        on_host: bool,
    ) -> list[WaitingTrial]:
        """Return the first trial and others of its kind, at most as many as the kind has lanes.
        `one_more` asks for another trial."""
        kind = self.kind(first, on_host=on_host)
        if kind is None:
            return [first]
        where = DeviceKind.CPU if on_host else DeviceKind.GPU
        # `first` carries the kind of device that was chosen just now, its copy in the queue not.
        queue = (first if w.trial == first.trial else w for w in waiting)
        allowed = (w for w in queue if w.may_go(where))
        same = [w for w in allowed if self.kind(w, on_host=on_host) == kind]
        while len(same) < kind.n_lanes and (another := one_more()) is not None:
            if self.kind(another, on_host=on_host) == kind:
                same.append(another)
        return same[: kind.n_lanes]

    def placed(
        self,
        group: Sequence[WaitingTrial],
        request: ResourceRequest,
        placement: Placement,
        place: Callable[[ResourceRequest], Placement | AdmissionRefusal],
    ) -> ExecutionStart:
        """Return a start of as many trials of the group as fit as one pack. If none fit together,
        the first starts alone with this request and placement."""
        while len(group) > 1:
            pack = self.request(group, placement.kind)
            decision = place(pack)
            if isinstance(decision, Placement):
                return ExecutionStart(group, pack, decision)
            group = group[: len(group) // 2]
        return ExecutionStart(group, request, placement)

    def for_lane(
        self, execution: AdmittedExecution, waiting: Iterable[WaitingTrial]
    ) -> WaitingTrial | None:
        """Return the trial that takes a free lane of this pack. None if another trial waits
        first."""
        on_host, where = execution.placement.on_host, execution.placement.kind
        head = next((w for w in waiting if w.may_go(where)), None)
        if head is None or self.kind(head, on_host=on_host) != execution.kind:
            return None
        return head if self.is_promised(execution, head) else None

    def is_promised(self, execution: AdmittedExecution, head: WaitingTrial) -> bool:
        """Return whether the pack's reservation is enough with the head in its free lane.

        The reservation is always enough for a pack no larger than the one it was made for, whatever
        was learned since.
        """
        kind = execution.placement.kind
        request = self.request([*execution.live, head], kind)
        has_room = execution.has_room_for(request)
        if has_room or request.memory_bytes is None:
            return has_room
        began = list(execution.members.values())[: execution.n_lanes]
        first_bytes = self.request(began, kind).memory_bytes
        return first_bytes is not None and request.memory_bytes <= first_bytes


def fair_n_lanes(n_lanes: int, n_waiting: int, n_free: int) -> int:
    """Return the number of lanes that divides the remaining trials among the free places, once
    nothing is left to ask for."""
    return min(n_lanes, math.ceil(n_waiting / max(1, n_free)))


GetProgress = Callable[[int], float | None]
"""Returns the fraction of a running trial that has been reported, above 0 and up to 1. None if
unknown."""
Predict = Callable[[WaitingTrial, DeviceKind], float | None]
"""Returns the seconds that a trial takes on such a device. None if unknown."""


class TrialDurations:
    """Learns durations from the trials that finished. For the main thread; it reads no clock."""

    def __init__(
        self,
        progress: GetProgress = lambda number: None,
        predict: Predict = lambda waiting, kind: None,
    ) -> None:
        self._progress, self._predict = progress, predict
        self._finished: list[float] = []
        """Durations of finished trials in seconds, in ascending order."""

    def finished(self, seconds: float) -> None:
        """Add the duration of a trial that came to its end."""
        bisect.insort(self._finished, seconds)

    def of(self, waiting: WaitingTrial, share: float = 0.5) -> float:
        """Return the seconds that a trial which has not started will take.

        They are predicted for the kind of device it goes to. Without a prediction they are the
        quantile `share` of the finished trials, by default the median, and infinite before the
        first one.
        """
        predicted = None if waiting.where is None else self._predict(waiting, waiting.where)
        return self._at(share, self._finished) if predicted is None else predicted

    def left(self, waiting: WaitingTrial, kind: DeviceKind, so_far: float) -> float:
        """Return the seconds that a trial will still take that has run for `so_far` seconds.

        If its reports tell its progress, its pace so far is extrapolated. Otherwise the prediction
        counts, and without one the finished trials that took longer than it has so far.
        """
        done = self._progress(waiting.trial.number)
        if done:
            return so_far * (1 - done) / done
        predicted = self._predict(waiting, kind)
        if predicted is not None:
            return predicted - so_far if predicted > so_far else so_far
        if not self._finished:
            return math.inf
        longer = self._finished[bisect.bisect_right(self._finished, so_far) :]
        return self._at(0.5, longer) - so_far if longer else so_far

    def end(self, execution: AdmittedExecution, now_seconds: float) -> float:
        """Return when the last of the execution's trials will have ended."""
        kind, since = execution.placement.kind, execution.since_seconds
        left = (self.left(w, kind, now_seconds - since[w.trial.number]) for w in execution.live)
        return now_seconds + max(left, default=0.0)

    @staticmethod
    def _at(share: float, ordered: list[float]) -> float:
        return ordered[int(share * len(ordered))] if ordered else math.inf
