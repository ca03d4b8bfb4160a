"""Trials that let all others pass: for what strangers hold of a device, or for one that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from automl.admission.reasons import Refusal, RefusalKind
from automl.running.messages import Start, Waiting
from automl.running.placing import Placing

AWAY = (RefusalKind.LOST, RefusalKind.DRAINED)
"""What the trial needs has failed."""
_FOR_GOOD = (RefusalKind.NO_ROOM, RefusalKind.LOST)
"""Nothing that this sweep does, or waits for, changes it."""


@dataclass
class HeldBack:
    """Those that ran out of memory for what others hold wait until nobody else does; those that fit
    on a drained device alone, until it answers. For the main thread."""

    placing: Placing
    trials: list[Waiting] = field(default_factory=list)

    def answered(self, now_seconds: float) -> list[Waiting]:
        """Those whose device answers again, which are held back no longer."""
        away = [w for w in self.trials if w.refusal.kind in AWAY]
        back: list[Waiting] = []
        self.trials = [w for w in self.trials if w.refusal.kind not in AWAY]
        for waiting in away:
            found = self._start(waiting, now_seconds)
            if isinstance(found, Refusal) and found.kind in AWAY:
                self.trials.append(replace(waiting, refusal=found))  # it may be lost by now
            else:
                back.append(waiting)
        return back

    @property
    def drained(self) -> list[Waiting]:
        """Those that wait for a device that may come back by itself."""
        return [w for w in self.trials if w.refusal.kind is RefusalKind.DRAINED]

    def starts(self, now_seconds: float) -> Iterator[Start]:
        """Nobody else waits any more: each gets another try, and has been started before the next
        is looked at."""
        trials, self.trials = self.trials, []
        for waiting in trials:
            found = self.placing.agreed(partial(self._start, waiting, now_seconds), now_seconds)
            if isinstance(found, Start):
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

    def _start(self, waiting: Waiting, now_seconds: float) -> Start | Refusal:
        request = self.placing.request(waiting)
        found = self.placing.place(request, now_seconds)
        return found if isinstance(found, Refusal) else Start([waiting], request, found)
