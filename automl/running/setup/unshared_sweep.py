"""The counterpart of `PeerSweeps` for a study that no other sweep works on (`shared_sweep.py` has
the others).

The file stands alone so that such a sweep loads nothing of shared studies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from automl.running.loop.messages import LoopMessage

ListBusyTrials = Callable[[], Collection[int]]
PostMessage = Callable[[LoopMessage], None]
EndLostTrials = Callable[[Collection[int]], None]
ExtendLease = Callable[[float], None]


class NoPeerSweeps:
    """Stands in for `PeerSweeps` if no other sweep works on the study, and does nothing."""

    may_run = False
    """Whether trials of other sweeps may run."""

    def is_lost(self, trial: int) -> bool:
        """Return False, since no other sweep takes trials."""
        return False

    def start(
        self, busy: ListBusyTrials, post: PostMessage, end: EndLostTrials, lend: ExtendLease
    ) -> None:
        """Do nothing, since there are no sweeps to watch."""

    def greeting(self) -> Iterator[str]:
        """Yield nothing, since there is nothing to say."""
        yield from ()

    def settle(self, timeout_seconds: float) -> str | None:
        """Return None: all logged events are in the study's own directory."""
        return None

    def trouble(self) -> str | None:
        """Return None, since there is no database."""
        return None
