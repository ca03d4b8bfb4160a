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

from automl.trial import Placement


@dataclass(frozen=True)
class Reservation:
    """Memory promised to one placed trial (or pack) on one device."""

    key: int
    """Number of the trial (of a pack: of its first)."""
    placement: Placement
    pid: int | None = None
    """Process that trains it; None until known."""
    peak_bytes: int = 0
    """The most it was seen to hold."""

    @property
    def counted_bytes(self) -> int:
        """What admission counts: the promise, or the observed peak where that is larger."""
        return max(self.placement.reservation_bytes, self.peak_bytes)


@dataclass(frozen=True)
class Context:
    """The CUDA context of one of our processes on a device: taken, but maybe not yet visible."""

    ready_seconds: float | None = None
    """`time.monotonic()` when the process said that CUDA is up; None: not yet."""

    def pending(self, reading_begun_seconds: float) -> bool:
        """Whether a reading begun then may have missed it."""
        return self.ready_seconds is None or reading_begun_seconds <= self.ready_seconds


@dataclass(frozen=True)
class LedgerView:
    """The ledger at one moment."""

    reservations: tuple[Reservation, ...] = ()
    contexts: Mapping[tuple[str, int], Context] = field(default_factory=dict)
    """By (device uuid, pid); a process that is not known yet has a negative stand-in."""

    def on(self, device_uuid: str) -> tuple[Reservation, ...]:
        return tuple(r for r in self.reservations if r.placement.device_uuid == device_uuid)

    def n_pending_contexts(self, device_uuid: str, reading_begun_seconds: float) -> int:
        return sum(
            uuid == device_uuid and context.pending(reading_begun_seconds)
            for (uuid, _), context in self.contexts.items()
        )


class Ledger:
    """The changing set of reservations. Every one is given back exactly once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reservations: dict[int, Reservation] = {}
        self._contexts: dict[tuple[str, int], Context] = {}

    def reserve(self, key: int, placement: Placement, pid: int | None = None) -> None:
        with self._lock:
            assert key not in self._reservations, f"trial {key} already holds a reservation"
            self._reservations[key] = Reservation(key, placement, pid)
            if not placement.on_host:
                self._contexts.setdefault(_context_key(self._reservations[key]), Context())

    def release(self, key: int) -> None:
        with self._lock:
            assert key in self._reservations, f"trial {key} holds no reservation"
            place = _context_key(self._reservations.pop(key))
            context = self._contexts.get(place)
            shared = any(_context_key(held) == place for held in self._reservations.values())
            if context is not None and context.ready_seconds is None and not shared:
                del self._contexts[place]  # it never came, or its process died before we heard

    @contextmanager
    def held(self, key: int) -> Iterator[None]:
        """The reservation made before is given back at the end, however that comes."""
        try:
            yield
        finally:
            self.release(key)

    def assign(self, key: int, pid: int) -> None:
        """The process that trains it is known now; a context promised without one is its."""
        with self._lock:
            held, assigned = self._reservations[key], replace(self._reservations[key], pid=pid)
            self._reservations[key] = assigned
            if (context := self._contexts.pop(_context_key(held), None)) is not None:
                self._contexts.setdefault(_context_key(assigned), context)

    def observe_peak(self, key: int, peak_bytes: int) -> None:
        with self._lock:
            seen = self._reservations[key]
            if peak_bytes > seen.peak_bytes:
                self._reservations[key] = replace(seen, peak_bytes=peak_bytes)

    def context_up(self, key: int, now_seconds: float) -> None:
        """CUDA runs in the trial's process; readings begun later see its context as foreign."""
        with self._lock:
            place = _context_key(self._reservations[key])
            if place in self._contexts and self._contexts[place].ready_seconds is None:
                self._contexts[place] = Context(now_seconds)

    def view(self) -> LedgerView:
        with self._lock:
            return LedgerView(tuple(self._reservations.values()), dict(self._contexts))


def _context_key(held: Reservation) -> tuple[str, int]:
    return held.placement.device_uuid, -1 - held.key if held.pid is None else held.pid
