"""What was promised to running trials, until it is given back.

NVML shows memory only once it is taken, long after admission; the ledger knows it from the moment
of the promise. Arithmetic over both is in `policy.py`. Changed by the main thread (reserve) and by
pool threads (release, peaks), each change under one short lock; readers get an immutable view.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from automl.devices.device import Reading
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
    size_bytes: int | None = None
    """The least that NVML showed of the process beyond torch's memory; None: not known."""
    in_doubt: bool = False
    """Its trial ended before it was said to be up: it may be there or not."""

    def pending(self, reading_begun_seconds: float) -> bool:
        """Whether a reading begun then may have missed it."""
        return self.ready_seconds is None or reading_begun_seconds <= self.ready_seconds


@dataclass(frozen=True)
class LedgerSnapshot:
    """The ledger at one moment."""

    reservations: tuple[Reservation, ...] = ()
    contexts: Mapping[tuple[DeviceId, ProcessId], Context] = field(default_factory=dict)
    """On GPUs; of a process that is not known yet by its stand-in."""
    least_foreign: Mapping[DeviceId, int] = field(default_factory=dict)
    """Bytes: the least that others were seen to hold."""
    host_peak_bytes: int = 0
    """The most main memory that a process of ours was seen to take that trains on a GPU."""

    def has_context(self, device: DeviceId, process: ProcessId) -> bool:
        """Whether a trial in that process needs no other there."""
        context = self.contexts.get((device, process))
        return context is not None and not context.in_doubt

    def context_of(self, device: DeviceId, process: ProcessId) -> int:
        """Bytes of its context, as far as they are known to be no foreign memory."""
        context = self.contexts.get((device, process))
        return 0 if context is None else context.size_bytes or 0

    def on(self, device: DeviceId) -> tuple[Reservation, ...]:
        return tuple(r for r in self.reservations if device in r.placement.devices)

    def n_unmeasured_contexts(self, device: DeviceId) -> int:
        """Those of which NVML does not tell whose they are."""
        sizes = (c.size_bytes for (where, _), c in self.contexts.items() if where == device)
        return sum(size is None for size in sizes)

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
        self._least_foreign: dict[DeviceId, int] = {}
        self._host_peak_bytes = 0

    def reserve(self, key: int, placement: Placement, process: ProcessId | None = None) -> None:
        with self._lock:
            assert key not in self._reservations, f"trial {key} already holds a reservation"
            held = self._reservations[key] = Reservation(key, placement, process)
            for place in _places(held):
                self._await(place, Context())

    def release(self, key: int, now_seconds: float) -> None:
        """Give it back. A context that is still awaited may have come by now: readings that begin
        later see it."""
        with self._lock:
            assert key in self._reservations, f"trial {key} holds no reservation"
            held = self._reservations.pop(key)
            shared = {place for other in self._reservations.values() for place in _places(other)}
            for place in _places(held):
                if not self._is_awaited(place) or place in shared:
                    continue
                if held.process is None:
                    del self._contexts[place]  # no process ever had it
                else:
                    self._contexts[place] = Context(now_seconds, in_doubt=True)

    @contextmanager
    def held(self, key: int, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """The reservation made before is given back at the end, however that comes."""
        try:
            yield
        finally:
            self.release(key, clock())

    def assign(self, key: int, process: ProcessId) -> None:
        """The process that trains it is known now; contexts promised without one are its."""
        with self._lock:
            before = self._reservations[key]
            assigned = self._reservations[key] = replace(before, process=process)
            for old, new in zip(_places(before), _places(assigned), strict=True):
                if (context := self._contexts.pop(old, None)) is not None:
                    self._await(new, context)

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

    def note(self, reading: Reading, sizes: Iterable[tuple[DeviceId, ProcessId, int]]) -> None:
        """Learn from a reading what contexts take, and which went with their processes."""
        alive = {process for _, process in reading.reserved_after}
        with self._lock:
            for device, process, size in sizes:
                context = self._contexts.get((device, process))
                if context is not None and not context.pending(reading.begun_seconds):
                    least = size if context.size_bytes is None else min(size, context.size_bytes)
                    self._contexts[device, process] = replace(context, size_bytes=least)
            for (device, process), held_bytes in reading.reserved_after.items():
                if device.on_host and self._has_come_up(process, reading):
                    self._host_peak_bytes = max(self._host_peak_bytes, held_bytes)
            working = {held.holder for held in self._reservations.values()}
            for device, process in [*self._contexts]:
                context = self._contexts[device, process]
                is_kept = process in alive | working and not context.in_doubt
                if not is_kept and not context.pending(reading.begun_seconds):
                    del self._contexts[device, process]

    def note_foreign(self, device: DeviceId, foreign_bytes: int) -> None:
        """Others hold so much of the device."""
        with self._lock:
            before = self._least_foreign.get(device, foreign_bytes)
            self._least_foreign[device] = min(before, foreign_bytes)

    def snapshot(self) -> LedgerSnapshot:
        with self._lock:
            return LedgerSnapshot(
                tuple(self._reservations.values()),
                dict(self._contexts),
                dict(self._least_foreign),
                self._host_peak_bytes,
            )

    def _has_come_up(self, process: ProcessId, reading: Reading) -> bool:
        """Whether it trains on a GPU, and has its libraries loaded."""
        return any(
            who == process and not context.pending(reading.begun_seconds)
            for (_, who), context in self._contexts.items()
        )

    def _await(self, place: tuple[DeviceId, ProcessId], context: Context) -> None:
        """A trial brings a context, unless it is surely there."""
        if place not in self._contexts or self._contexts[place].in_doubt:
            self._contexts[place] = context

    def _is_awaited(self, place: tuple[DeviceId, ProcessId]) -> bool:
        return place in self._contexts and self._contexts[place].ready_seconds is None


def _places(held: Reservation) -> tuple[tuple[DeviceId, ProcessId], ...]:
    """Where it brings a CUDA context: on each of its GPUs."""
    return tuple((device, held.holder) for device in held.placement.devices if not device.on_host)
