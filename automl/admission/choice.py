"""On which kind of device a trial ends first, its wait counted. Pure.

end  =  when a place comes free for it, those counted that wait before it  +  how long it takes
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from automl.trial import DeviceKind


@dataclass(frozen=True)
class Option:
    """A kind of device that a trial may go to."""

    kind: DeviceKind
    wait_seconds: float
    """0: it can start now."""
    seconds: float
    """That it takes there."""

    @property
    def end_seconds(self) -> float:
        return self.wait_seconds + self.seconds


def first_to_end(options: Sequence[Option]) -> Option:
    """Of those that end at the same time a GPU."""
    return min(options, key=lambda o: (o.end_seconds, o.kind is DeviceKind.CPU))


class Line:
    """The places of one kind of device, and when each comes free, as trials wait for them."""

    def __init__(self, left_seconds: Iterable[float]) -> None:
        """Of what runs there, each with a place."""
        self._free = list(left_seconds)
        heapq.heapify(self._free)

    def wait_seconds(self, seconds: float) -> float:
        """Until one more that takes so long can start. Where nothing runs that could end it waits
        for others, nobody knows how long: as long as it takes itself."""
        return self._free[0] if self._free else seconds

    def join(self, seconds: float) -> None:
        """One that takes so long waits there."""
        if self._free:
            heapq.heapreplace(self._free, self._free[0] + seconds)
