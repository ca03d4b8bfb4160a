"""A sweep whose study is its own: no other works on it meanwhile (`shared.py` has those)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from automl.running.loop.messages import LoopMessage

ListBusyTrials = Callable[[], Collection[int]]
PostMessage = Callable[[LoopMessage], None]
EndLostTrials = Callable[[Collection[int]], None]
ExtendLease = Callable[[float], None]


class NoPeerSweeps:
    """Stands where `PeerSweeps` does, and has nothing to do."""

    may_run = False
    """Whether trials may run that are not this sweep's."""

    def is_lost(self, trial: int) -> bool:
        """No trial ever is."""
        return False

    def start(
        self, busy: ListBusyTrials, post: PostMessage, end: EndLostTrials, lend: ExtendLease
    ) -> None:
        """Nobody is to be heard of."""

    def greeting(self) -> Iterator[str]:
        """Nothing is to be said."""
        yield from ()

    def settle(self, timeout_seconds: float) -> str | None:
        """What was logged is in the study's own directory."""
        return None

    def trouble(self) -> str | None:
        """There is none."""
        return None
