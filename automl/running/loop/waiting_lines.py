"""Decides which waiting trial is next in a sweep with one kind of device: the head of its only
line.

`device_choice.py` does the same for several kinds, each with its own line. `DeferredTrials` holds
the trials that let all others pass, because of other users' memory or a failed device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias

from automl.admission.refusals import SURVEYING_REFUSAL, AdmissionRefusal, RefusalKind
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    RunningTrial,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.trial import DeviceKind, Params, ResourceRequest

DEVICE_GONE_KINDS = (RefusalKind.LOST, RefusalKind.DRAINED)
"""Refusals whose cause is a failed device."""
_FOR_GOOD = (RefusalKind.NO_ROOM, RefusalKind.LOST)
"""Refusals that no action of this sweep, and no waiting, changes."""


@dataclass
class DeferredTrials:
    """Trials that let all others pass. For the main thread.

    A trial that ran out of memory because of other users waits until no other trial waits. A trial
    that fits only on a drained device waits until the device answers.
    """

    placing: TrialPlacer
    trials: list[WaitingTrial] = field(default_factory=list)

    def answered(self, now_seconds: float) -> list[WaitingTrial]:
        """Return the trials whose device answers again. They are held back no longer."""
        away = [w for w in self.trials if w.refusal.kind in DEVICE_GONE_KINDS]
        back: list[WaitingTrial] = []
        self.trials = [w for w in self.trials if w.refusal.kind not in DEVICE_GONE_KINDS]
        for waiting in away:
            found = self._start(waiting, now_seconds)
            if isinstance(found, AdmissionRefusal) and found.kind in DEVICE_GONE_KINDS:
                # The device may be lost by now.
                self.trials.append(replace(waiting, refusal=found))
            else:
                back.append(waiting)
        return back

    @property
    def drained(self) -> list[WaitingTrial]:
        """Trials that wait for a device that may come back by itself."""
        return [w for w in self.trials if w.refusal.kind is RefusalKind.DRAINED]

    def starts(self, now_seconds: float) -> Iterator[ExecutionStart]:
        """Try each deferred trial again, once no other trial waits. Each has been started before
        the next is looked at."""
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
        """Whether the deferred trials would wait for other users only, by a reading that shows
        it."""
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


class TrialQueues(Protocol):
    """The lines of waiting trials, and what is learned for them. For the main thread."""

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

    def asked(self, params: Params) -> None:
        """Note that the study has asked for a trial with these params."""

    def observe(self, now_seconds: float) -> None:
        """Time the steps of running executions, after a reading of the devices."""

    def finished(
        self, running: RunningTrial, execution: AdmittedExecution, now_seconds: float
    ) -> None:
        """Learn from a trial that has come to its end."""

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """Return the trial as it is once it has started on this kind of device."""

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Return the kind on which a trial that ran on `kind` goes on. None for any kind."""


@dataclass
class SingleQueue:
    """One line, first come, first served."""

    placing: TrialPlacer

    def look(
        self,
        waiting: Sequence[WaitingTrial],
        n_to_come: int,
        try_start: TryStart,
        now_seconds: float,
    ) -> ExecutionStart | RefusedTrial | AllTrialsWait:
        """Start the head, or let all trials wait for it."""
        head, known = waiting[0], self.placing.known_request(waiting[0])
        found = SURVEYING_REFUSAL if known is None else try_start(head, known)
        if isinstance(found, ExecutionStart):
            return found
        refused = RefusedTrial(replace(head, refusal=found), known or self.placing.request(head))
        return refused if refused.is_put_aside else AllTrialsWait([refused])

    def asked(self, params: Params) -> None:
        """Do nothing, since nothing depends on the params."""

    def observe(self, now_seconds: float) -> None:
        """Do nothing, since all trials go to the same kind of device, however fast."""

    def finished(
        self, running: RunningTrial, execution: AdmittedExecution, now_seconds: float
    ) -> None:
        """Do nothing, since all trials go to the same kind of device."""

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """Return the trial unchanged, since there is no other kind."""
        return waiting

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Return None, since the trial goes wherever there is a device now."""
        return None


def remove_trials(waiting: deque[WaitingTrial], numbers: set[int]) -> deque[WaitingTrial]:
    """Return the waiting trials without these numbers.

    Among thousands the first is nearly always the one to go. The same queue is then returned.
    """
    left = set(numbers)
    while waiting and waiting[0].trial.number in left:
        left.discard(waiting.popleft().trial.number)
    return deque(w for w in waiting if w.trial.number not in left) if left else waiting


def _waits_for_room(refusal: AdmissionRefusal) -> bool:
    return (
        refusal.kind is RefusalKind.NO_ROOM
        and not refusal.in_the_way
        and refusal != SURVEYING_REFUSAL
    )
