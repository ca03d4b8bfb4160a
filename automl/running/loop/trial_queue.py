"""Holds the waiting trials of a sweep, and decides which of them is next.

`TrialQueue` owns them all. `WaitingLines` finds the next one in a sweep with one kind of device;
`device_choice.py` does the same for several kinds, each with its own line.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from automl.admission.refusals import SURVEYING_REFUSAL, AdmissionRefusal, RefusalKind
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.trial import DeviceKind, Params, ResourceRequest

DEVICE_GONE_KINDS = (RefusalKind.LOST, RefusalKind.DRAINED)
"""Refusals whose cause is a failed device."""
_FOR_GOOD = (RefusalKind.NO_ROOM, RefusalKind.LOST)
"""Refusals that no action of this sweep, and no waiting, changes."""


StartAlone: TypeAlias = Callable[[WaitingTrial], "ExecutionStart | AdmissionRefusal"]
"""Returns where the trial starts now by itself, or why it does not."""


class WaitingState(enum.Enum):
    """The states of a waiting trial."""

    QUEUED = "queued"
    """The trial starts as soon as it has a device, in the order of the queue."""
    DEFERRED = "deferred"
    """The trial lets all others pass. It ran out of memory because of other users, and waits until
    no other trial waits; or its device has failed, and it waits until the device answers."""
    IN_DOUBT = "in doubt"
    """The trial's lease ended here. It waits until the sweeps that may have taken it report."""
    PAUSED = "paused"
    """The trial has stopped at a rung. It waits until the study promotes it."""


class TrialQueue:
    """Owns the waiting trials of a sweep, each in one state. For the main thread."""

    def __init__(self) -> None:
        self._trials = {state: deque[WaitingTrial]() for state in WaitingState}

    @property
    def queued(self) -> Sequence[WaitingTrial]:
        """The queued trials, the head first."""
        return self._trials[WaitingState.QUEUED]

    @property
    def deferred(self) -> Sequence[WaitingTrial]:
        """The deferred trials, in the order in which they are tried again."""
        return self._trials[WaitingState.DEFERRED]

    @property
    def head(self) -> WaitingTrial | None:
        """The first queued trial."""
        return self.queued[0] if self.queued else None

    @property
    def may_start(self) -> bool:
        """Whether a trial is queued, or may be once other sweeps have reported."""
        return bool(self.queued or self._trials[WaitingState.IN_DOUBT])

    @property
    def is_stuck(self) -> bool:
        """Whether the deferred trials wait for other users only."""
        return all(w.refusal.kind in _FOR_GOOD and not w.refusal.in_the_way for w in self.deferred)

    @property
    def drained(self) -> list[WaitingTrial]:
        """Deferred trials whose device may come back by itself."""
        return [w for w in self.deferred if w.refusal.kind is RefusalKind.DRAINED]

    def held_trials(self) -> list[int]:
        """Return the numbers of the trials that this sweep holds. For any thread."""
        held = (WaitingState.DEFERRED, WaitingState.QUEUED)
        return [w.trial.number for state in held for w in self._trials[state].copy()]

    def add(self, waiting: WaitingTrial, state: WaitingState = WaitingState.QUEUED) -> None:
        """Put the trial behind all others of the state."""
        self._trials[state].append(waiting)

    def add_first(self, waiting: WaitingTrial) -> None:
        """Queue the trial before all others."""
        self._trials[WaitingState.QUEUED].appendleft(waiting)

    def remove(self, numbers: Collection[int]) -> None:
        """Remove queued trials that start or are put aside.

        Among thousands the first is nearly always the one to go.
        """
        queued, left = self._trials[WaitingState.QUEUED], set(numbers)
        while queued and queued[0].trial.number in left:
            left.discard(queued.popleft().trial.number)
        if left:
            self._keep_queued(w for w in queued if w.trial.number not in left)

    def withdraw(self, number: int) -> WaitingTrial | None:
        """Remove a trial that waits, in whatever state, and return it. None if it does not wait."""
        for state, waiting in self._trials.items():
            for trial in waiting:
                if trial.trial.number == number:
                    self._trials[state] = deque(w for w in waiting if w is not trial)
                    return trial
        return None

    def refuse(self, refused: Sequence[RefusedTrial]) -> None:
        """Note why the first queued trials do not start."""
        for n, each in enumerate(refused):
            self._trials[WaitingState.QUEUED][n] = each.waiting

    def settle_doubts(self, is_lost: Callable[[int], bool]) -> None:
        """Drop the trials that other sweeps have taken, and queue those in doubt before others."""
        waiting = [*self._take(WaitingState.IN_DOUBT), *self.queued]
        self._keep_queued(w for w in waiting if not is_lost(w.trial.number))

    def requeue_answered(self, look: StartAlone) -> None:
        """Queue the deferred trials whose device answers again before all others."""
        back = []
        for waiting in self._take(WaitingState.DEFERRED):
            if waiting.refusal.kind not in DEVICE_GONE_KINDS:
                self.add(waiting, WaitingState.DEFERRED)
                continue
            found = look(waiting)
            if isinstance(found, AdmissionRefusal) and found.kind in DEVICE_GONE_KINDS:
                # The device may be lost by now.
                self.add(replace(waiting, refusal=found), WaitingState.DEFERRED)
            else:
                back.append(waiting)
        self._trials[WaitingState.QUEUED].extendleft(reversed(back))

    def try_deferred(self, look: StartAlone) -> Iterator[ExecutionStart]:
        """Yield the deferred trials that start now. Each starts before the next is looked at."""
        for waiting in self._take(WaitingState.DEFERRED):
            found = look(waiting)
            if isinstance(found, ExecutionStart):
                yield found
            else:
                self.add(replace(waiting, refusal=found), WaitingState.DEFERRED)

    def _take(self, state: WaitingState) -> list[WaitingTrial]:
        taken, self._trials[state] = list(self._trials[state]), deque()
        return taken

    def _keep_queued(self, waiting: Iterable[WaitingTrial]) -> None:
        self._trials[WaitingState.QUEUED] = deque(waiting)


TryStart: TypeAlias = Callable[[WaitingTrial, ResourceRequest], "ExecutionStart | AdmissionRefusal"]
"""Returns where the trial starts now, with the trials that go with it as a pack."""


@dataclass(frozen=True)
class RefusedTrial:
    """A trial that does not start now, with its request. The refusal stands in `waiting`."""

    waiting: WaitingTrial
    request: ResourceRequest

    @property
    def refusal(self) -> AdmissionRefusal:
        return self.waiting.refusal

    def behind(self, waiting: Iterable[WaitingTrial]) -> list[WaitingTrial]:
        """Return the trials behind it in its line."""
        everyone = list(waiting)
        numbers = [trial.trial.number for trial in everyone]
        after = everyone[numbers.index(self.waiting.trial.number) + 1 :]
        return [trial for trial in after if trial.where is self.waiting.where]

    @property
    def is_put_aside(self) -> bool:
        """Whether the trial leaves the line, because it fits nowhere or its device has failed."""
        return self.refusal.kind is RefusalKind.NEVER or self.refusal.kind in DEVICE_GONE_KINDS


@dataclass(frozen=True)
class AllTrialsWait:
    """Says that none of the trials looked at can start now."""

    refused: Sequence[RefusedTrial]
    """The refused trials in queue order, from the first waiting trial on."""
    takes_more: bool = False
    """Whether a trial that is asked for now could start on another kind of device."""

    @property
    def for_room(self) -> RefusedTrial | None:
        """The first trial that waits for memory of running trials, which others may pass."""
        return next((r for r in self.refused if _waits_for_room(r.refusal)), None)


@dataclass
class WaitingLines:
    """One line, first come, first served. For the main thread.

    `DeviceKindLines` has one for each kind of device, and learns which trials go where.
    """

    placing: TrialPlacer

    def look(
        self,
        waiting: Sequence[WaitingTrial],
        n_to_come: int,
        try_start: TryStart,
        now_seconds: float,
    ) -> ExecutionStart | RefusedTrial | AllTrialsWait:
        """Return which trial starts next, or which is put aside, or why all wait.

        `n_to_come`: number of trials that may still be asked for.
        """
        head, known = waiting[0], self.placing.known_request(waiting[0])
        found = SURVEYING_REFUSAL if known is None else try_start(head, known)
        if isinstance(found, ExecutionStart):
            return found
        refused = RefusedTrial(replace(head, refusal=found), known or self.placing.request(head))
        return refused if refused.is_put_aside else AllTrialsWait([refused])

    def asked(self, params: Params) -> None:
        """Note that the study has asked for a trial with these params."""

    def observe(self, now_seconds: float) -> None:
        """Time the steps of running executions, after a reading of the devices."""

    def finished(self, number: int, execution: AdmittedExecution, seconds: float) -> None:
        """Learn from a trial that has come to its end after this time."""

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """Return the trial as it is once it has started on this kind of device."""
        return waiting

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Return the kind on which a trial that ran on `kind` goes on. None for any kind."""
        return None


def _waits_for_room(refusal: AdmissionRefusal) -> bool:
    return (
        refusal.kind is RefusalKind.NO_ROOM
        and not refusal.in_the_way
        and refusal != SURVEYING_REFUSAL
    )
