"""Who of those that wait is next: where a sweep has one kind of device, the head of its one line.

`device_choice.py` has the same for several kinds, each with a line of its own.

Trials that let all others pass: for what strangers hold of a device, or for one that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias

from automl.admission.refusals import SURVEYING, AdmissionRefusal, RefusalKind
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    RunningTrial,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.trial import DeviceKind, Params, ResourceRequest

DEVICE_GONE_KINDS = (RefusalKind.LOST, RefusalKind.DRAINED)
"""What the trial needs has failed."""
_FOR_GOOD = (RefusalKind.NO_ROOM, RefusalKind.LOST)
"""Nothing that this sweep does, or waits for, changes it."""


@dataclass
class DeferredTrials:
    """Those that ran out of memory for what others hold wait until nobody else does; those that fit
    on a drained device alone, until it answers. For the main thread."""

    placing: TrialPlacer
    trials: list[WaitingTrial] = field(default_factory=list)

    def answered(self, now_seconds: float) -> list[WaitingTrial]:
        """Those whose device answers again, which are held back no longer."""
        away = [w for w in self.trials if w.refusal.kind in DEVICE_GONE_KINDS]
        back: list[WaitingTrial] = []
        self.trials = [w for w in self.trials if w.refusal.kind not in DEVICE_GONE_KINDS]
        for waiting in away:
            found = self._start(waiting, now_seconds)
            if isinstance(found, AdmissionRefusal) and found.kind in DEVICE_GONE_KINDS:
                self.trials.append(replace(waiting, refusal=found))  # it may be lost by now
            else:
                back.append(waiting)
        return back

    @property
    def drained(self) -> list[WaitingTrial]:
        """Those that wait for a device that may come back by itself."""
        return [w for w in self.trials if w.refusal.kind is RefusalKind.DRAINED]

    def starts(self, now_seconds: float) -> Iterator[ExecutionStart]:
        """Nobody else waits any more: each gets another try, and has been started before the next
        is looked at."""
        trials, self.trials = self.trials, []
        for waiting in trials:
            found = self.placing.agreed(partial(self._start, waiting, now_seconds), now_seconds)
            if isinstance(found, ExecutionStart):
                yield found
            else:
                self.trials.append(replace(waiting, refusal=found))
                self.placing.make_room(found)

    @property
    def for_good(self) -> bool:
        """Whether they would wait for others alone, by a reading that shows it."""
        return all(
            waiting.refusal.kind in _FOR_GOOD and not waiting.refusal.in_the_way
            for waiting in self.trials
        ) and (not self.trials or self.placing.shows_the_last_end)

    def _start(
        self, waiting: WaitingTrial, now_seconds: float
    ) -> ExecutionStart | AdmissionRefusal:
        request = self.placing.request(waiting)
        found = self.placing.place(request, now_seconds)
        return (
            found
            if isinstance(found, AdmissionRefusal)
            else ExecutionStart([waiting], request, found)
        )


TryStart: TypeAlias = Callable[[WaitingTrial, ResourceRequest], "ExecutionStart | AdmissionRefusal"]
"""Where this one starts now, with those that go with it as a pack."""


@dataclass(frozen=True)
class RefusedTrial:
    """One that does not start now, with what it asked for; the refusal stands in `waiting`."""

    waiting: WaitingTrial
    request: ResourceRequest

    @property
    def refusal(self) -> AdmissionRefusal:
        return self.waiting.refusal

    def behind(self, waiting: Iterable[WaitingTrial]) -> list[WaitingTrial]:
        """Those after it in its line."""
        everyone = list(waiting)
        numbers = [one.trial.number for one in everyone]
        after = everyone[numbers.index(self.waiting.trial.number) + 1 :]
        return [one for one in after if one.where is self.waiting.where]

    @property
    def is_put_aside(self) -> bool:
        """Whether it waits in the line no more: it fits nowhere, or what it needs has failed."""
        return self.refusal.kind is RefusalKind.NEVER or self.refusal.kind in DEVICE_GONE_KINDS


@dataclass(frozen=True)
class AllTrialsWait:
    """Nobody who was looked at can start now."""

    refused: Sequence[RefusedTrial]
    """In their order: the first of those that wait."""
    takes_more: bool = False
    """One who is asked for now could start, elsewhere."""

    @property
    def for_room(self) -> RefusedTrial | None:
        """The first who waits for what trials hold, which others may pass."""
        return next((r for r in self.refused if _waits_for_room(r.refusal)), None)


class TrialQueues(Protocol):
    """Those that wait, and what is learned for them. For the main thread."""

    def look(
        self,
        waiting: Sequence[WaitingTrial],
        n_to_come: int,
        try_start: TryStart,
        now_seconds: float,
    ) -> ExecutionStart | RefusedTrial | AllTrialsWait:
        """Who starts next; else who is to be put aside; else why all wait. `n_to_come`: trials that
        may still be asked for."""

    def asked(self, params: Params) -> None:
        """The study has asked for one with these."""

    def observe(self, now_seconds: float) -> None:
        """The devices were read: how many steps has taken what runs?"""

    def finished(
        self, running: RunningTrial, execution: AdmittedExecution, now_seconds: float
    ) -> None:
        """A trial has come to its end."""

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """As it is once it has started on such a device."""

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """On which a trial that ran on such a device goes on; None: on any."""


@dataclass
class SingleQueue:
    """First come, first served."""

    placing: TrialPlacer

    def look(
        self,
        waiting: Sequence[WaitingTrial],
        n_to_come: int,
        try_start: TryStart,
        now_seconds: float,
    ) -> ExecutionStart | RefusedTrial | AllTrialsWait:
        """The head starts, or all wait for it."""
        head, known = waiting[0], self.placing.known_request(waiting[0])
        found = SURVEYING if known is None else try_start(head, known)
        if isinstance(found, ExecutionStart):
            return found
        refused = RefusedTrial(replace(head, refusal=found), known or self.placing.request(head))
        return refused if refused.is_put_aside else AllTrialsWait([refused])

    def asked(self, params: Params) -> None:
        """Nothing depends on it."""

    def observe(self, now_seconds: float) -> None:
        """All go to the same kind of device, however fast they are."""

    def finished(
        self, running: RunningTrial, execution: AdmittedExecution, now_seconds: float
    ) -> None:
        """As `observe`."""

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """There is no other kind."""
        return waiting

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Wherever there is a device now."""
        return None


def remove_trials(waiting: deque[WaitingTrial], numbers: set[int]) -> deque[WaitingTrial]:
    """Those that wait but these trials: of thousands it is nearly always the first who goes, and
    then the same queue is given back."""
    left = set(numbers)
    while waiting and waiting[0].trial.number in left:
        left.discard(waiting.popleft().trial.number)
    return deque(w for w in waiting if w.trial.number not in left) if left else waiting


def _waits_for_room(refusal: AdmissionRefusal) -> bool:
    return refusal.kind is RefusalKind.NO_ROOM and not refusal.in_the_way and refusal != SURVEYING
