"""Who of those that wait is next: where a sweep has one kind of device, the head of its one line.

`choosing.py` has the same for several kinds, each with a line of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from automl.admission.reasons import SURVEYING, Refusal, RefusalKind
from automl.running.held_back import AWAY
from automl.running.messages import Execution, Running, Start, Waiting
from automl.running.placing import Placing
from automl.trial import DeviceKind, Params, Request

TryStart: TypeAlias = Callable[[Waiting, Request], "Start | Refusal"]
"""Where this one starts now, with those that go with it as a pack."""


@dataclass(frozen=True)
class Refused:
    """One that does not start now, with what it asked for; the refusal stands in `waiting`."""

    waiting: Waiting
    request: Request

    @property
    def refusal(self) -> Refusal:
        return self.waiting.refusal

    def behind(self, waiting: Iterable[Waiting]) -> list[Waiting]:
        """Those after it in its line."""
        everyone = list(waiting)
        numbers = [one.trial.number for one in everyone]
        after = everyone[numbers.index(self.waiting.trial.number) + 1 :]
        return [one for one in after if one.where is self.waiting.where]

    @property
    def is_put_aside(self) -> bool:
        """Whether it waits in the line no more: it fits nowhere, or what it needs has failed."""
        return self.refusal.kind is RefusalKind.NEVER or self.refusal.kind in AWAY


@dataclass(frozen=True)
class AllWait:
    """Nobody who was looked at can start now."""

    refused: Sequence[Refused]
    """In their order: the first of those that wait."""
    takes_more: bool = False
    """One who is asked for now could start, elsewhere."""

    @property
    def for_room(self) -> Refused | None:
        """The first who waits for what trials hold, which others may pass."""
        return next((r for r in self.refused if _waits_for_room(r.refusal)), None)


class Lines(Protocol):
    """Those that wait, and what is learned for them. For the main thread."""

    def look(
        self, waiting: Sequence[Waiting], n_to_come: int, try_start: TryStart, now_seconds: float
    ) -> Start | Refused | AllWait:
        """Who starts next; else who is to be put aside; else why all wait. `n_to_come`: trials that
        may still be asked for."""

    def asked(self, params: Params) -> None:
        """The study has asked for one with these."""

    def observe(self, now_seconds: float) -> None:
        """The devices were read: how many steps has taken what runs?"""

    def finished(self, running: Running, execution: Execution, now_seconds: float) -> None:
        """A trial has come to its end."""

    def bound(self, waiting: Waiting, kind: DeviceKind) -> Waiting:
        """As it is once it has started on such a device."""

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """On which a trial that ran on such a device goes on; None: on any."""


@dataclass
class OneLine:
    """First come, first served."""

    placing: Placing

    def look(
        self, waiting: Sequence[Waiting], n_to_come: int, try_start: TryStart, now_seconds: float
    ) -> Start | Refused | AllWait:
        """The head starts, or all wait for it."""
        head, known = waiting[0], self.placing.known_request(waiting[0])
        found = SURVEYING if known is None else try_start(head, known)
        if isinstance(found, Start):
            return found
        refused = Refused(replace(head, refusal=found), known or self.placing.request(head))
        return refused if refused.is_put_aside else AllWait([refused])

    def asked(self, params: Params) -> None:
        """Nothing depends on it."""

    def observe(self, now_seconds: float) -> None:
        """All go to the same kind of device, however fast they are."""

    def finished(self, running: Running, execution: Execution, now_seconds: float) -> None:
        """As `observe`."""

    def bound(self, waiting: Waiting, kind: DeviceKind) -> Waiting:
        """There is no other kind."""
        return waiting

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Wherever there is a device now."""
        return None


def without(waiting: deque[Waiting], numbers: set[int]) -> deque[Waiting]:
    """Those that wait but these trials: of thousands it is nearly always the first who goes, and
    then the same queue is given back."""
    left = set(numbers)
    while waiting and waiting[0].trial.number in left:
        left.discard(waiting.popleft().trial.number)
    return deque(w for w in waiting if w.trial.number not in left) if left else waiting


def _waits_for_room(refusal: Refusal) -> bool:
    return refusal.kind is RefusalKind.NO_ROOM and not refusal.in_the_way and refusal != SURVEYING
