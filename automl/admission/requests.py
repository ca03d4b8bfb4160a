"""The one door by which requests are made: what a trial asks for, and how that is known.

A request is made anew at each decision, for the head, for a pack, and for whatever is looked ahead
to: what was measured meanwhile counts. For the main thread; no lock, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from automl.trial import DeviceKind, MemoryPeak, Params, Request, RequestSource

OOM_GROWTH = 1.5
"""A trial that ran out of memory asks for this much more."""
ALONE_AFTER = 2
"""Times a trial ran out of memory after which it gets the largest device to itself."""


@dataclass(frozen=True)
class Measured:
    """The most memory that a trial, or a pack that it was of, was seen to hold on a device."""

    params: Params
    peak_bytes: int
    n_lanes: int = 1


class Requests:
    """Makes the requests of one sweep."""

    def __init__(self, estimate: Callable[[Params], Request], declared_bytes: int | None) -> None:
        """`estimate` says what is known of params by arithmetic; what the user declared goes
        before it."""
        self._estimate = estimate
        self._declared_bytes = declared_bytes
        self.measured: dict[tuple[int, int], Measured] = {}
        """By trial and how many trained together."""

    def of(self, params: Params, n_ran_out: int = 0) -> Request:
        """For a trial that ran out of memory so often."""
        request = self._estimate(params)
        if self._declared_bytes is not None:
            declared = self._declared_bytes
            request = replace(request, memory_bytes=declared, source=RequestSource.DECLARED)
        if n_ran_out == 0:
            return request
        if n_ran_out >= ALONE_AFTER or not request.memory_bytes:
            return replace(request, memory_bytes=None, source=RequestSource.RAN_OUT, alone=True)
        grown = int(OOM_GROWTH * request.memory_bytes)
        return replace(request, memory_bytes=grown, source=RequestSource.RAN_OUT)

    def least(self) -> Request:
        """What any trial asks for at least; none is asked for while not even that has room."""
        return Request(self._declared_bytes or 0)

    def learn(self, params: Params, peak: MemoryPeak) -> None:
        """Take what was measured, now or in an earlier sweep of the study."""
        measured = Measured(params, peak.peak_bytes, peak.n_lanes)
        self.measured[peak.trial, peak.n_lanes] = measured


def together(requests: Sequence[Request], kind: DeviceKind) -> Request:
    """A pack is one admission, on such a device: as many times its largest member as it has lanes;
    of unknown size on a GPU where one of them is."""
    known = [r.memory_bytes for r in requests if r.memory_bytes is not None]
    is_known = len(known) == len(requests) or (known and kind is DeviceKind.CPU)
    size = len(requests) * max(known) if is_known else None
    return replace(requests[0], memory_bytes=size, kinds=frozenset({kind}))
