"""What was promised to running trials, until it is given back.

NVML shows memory only once it is taken, long after admission; the ledger knows it from the moment
of the promise. Arithmetic over both is in `policy.py`. Changed by the main thread (reserve) and by
pool threads (release, peaks), each change under one short lock; readers get an immutable view.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from automl.trial import DeviceId, Placement, ProcessId


@dataclass(frozen=True)
class Reservation:
    """Memory promised to one placed trial (or pack) on its devices."""

    key: int
    """Number of the trial (of a pack: of its first)."""
    placement: Placement
    process: ProcessId | None = None
    """That trains it; None until known."""
    peak_bytes: int = 0
    """The most it was seen to hold on any of its devices."""

    def counted_bytes(self, device: DeviceId) -> int:
        """What admission counts: the promise, or the observed peak where that is larger."""
        promises = (s.reservation_bytes for s in self.placement.shares if s.device == device)
        return max(next(promises), self.peak_bytes)

    @property
    def holder(self) -> ProcessId:
        """Its process; one that is not known yet has a negative stand-in."""
        return self.process or ProcessId(self.placement.node, -1 - self.key)


@dataclass(frozen=True)
class Context:
    """The CUDA context of one of our processes on a device: taken, but maybe not yet visible."""

    ready_seconds: float | None = None
    """`time.monotonic()` when the process said that CUDA is up; None: not yet."""

    def pending(self, reading_begun_seconds: float) -> bool:
        """Whether a reading begun then may have missed it."""
        return self.ready_seconds is None or reading_begun_seconds <= self.ready_seconds


@dataclass(frozen=True)
class LedgerSnapshot:
    """The ledger at one moment."""

    reservations: tuple[Reservation, ...] = ()
    contexts: Mapping[tuple[DeviceId, ProcessId], Context] = field(default_factory=dict)
    """On GPUs; of a process that is not known yet by its stand-in."""

    def on(self, device: DeviceId) -> tuple[Reservation, ...]:
        return tuple(r for r in self.reservations if device in r.placement.devices)

    def n_pending_contexts(self, device: DeviceId, reading_begun_seconds: float) -> int:
        return sum(
            where == device and context.pending(reading_begun_seconds)
            for (where, _), context in self.contexts.items()
        )


class Ledger:
    """The changing set of reservations. Every one is given back exactly once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reservations: dict[int, Reservation] = {}
        self._contexts: dict[tuple[DeviceId, ProcessId], Context] = {}

    def reserve(self, key: int, placement: Placement, process: ProcessId | None = None) -> None:
        with self._lock:
            assert key not in self._reservations, f"trial {key} already holds a reservation"
            held = self._reservations[key] = Reservation(key, placement, process)
            for place in _places(held):
                self._contexts.setdefault(place, Context())

    def release(self, key: int) -> None:
        with self._lock:
            assert key in self._reservations, f"trial {key} holds no reservation"
            left = _places(self._reservations.pop(key))
            shared = {place for held in self._reservations.values() for place in _places(held)}
            for place in left:
                if self._is_awaited(place) and place not in shared:
                    del self._contexts[place]  # never came, or its process died before we heard

    @contextmanager
    def held(self, key: int) -> Iterator[None]:
        """The reservation made before is given back at the end, however that comes."""
        try:
            yield
        finally:
            self.release(key)

    def assign(self, key: int, process: ProcessId) -> None:
        """The process that trains it is known now; contexts promised without one are its."""
        with self._lock:
            before = self._reservations[key]
            assigned = self._reservations[key] = replace(before, process=process)
            for old, new in zip(_places(before), _places(assigned), strict=True):
                if (context := self._contexts.pop(old, None)) is not None:
                    self._contexts.setdefault(new, context)

    def observe_peak(self, key: int, peak_bytes: int) -> None:
        with self._lock:
            seen = self._reservations[key]
            if peak_bytes > seen.peak_bytes:
                self._reservations[key] = replace(seen, peak_bytes=peak_bytes)

    def context_up(self, key: int, now_seconds: float) -> None:
        """CUDA runs in the trial's process; readings begun later see its contexts as foreign."""
        with self._lock:
            for place in _places(self._reservations[key]):
                if self._is_awaited(place):
                    self._contexts[place] = Context(now_seconds)

    def snapshot(self) -> LedgerSnapshot:
        with self._lock:
            return LedgerSnapshot(tuple(self._reservations.values()), dict(self._contexts))

    def _is_awaited(self, place: tuple[DeviceId, ProcessId]) -> bool:
        return place in self._contexts and self._contexts[place].ready_seconds is None


def _places(held: Reservation) -> tuple[tuple[DeviceId, ProcessId], ...]:
    """Where it brings a CUDA context: on each of its GPUs."""
    return tuple((device, held.holder) for device in held.placement.devices if not device.on_host)
