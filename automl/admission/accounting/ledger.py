"""Records what was promised to running trials, until it is given back.

NVML shows memory only once it is taken, long after admission; the ledger knows it from the moment
of the promise. `account.py` computes with both. The main thread (reserve) and pool threads
(release, peaks) change the ledger, each under one short lock.

Readers get an immutable snapshot. Only the pages of changed devices are made anew in it, and the
snapshot tells which devices these are. Its cost therefore does not grow with the number of devices.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, Placement, ProcessId


@dataclass(frozen=True)
class Reservation:
    """Memory promised to one placed trial (or pack) on its devices."""

    key: int
    """Key of the execution that it is for: a trial, or a pack."""
    placement: Placement
    process: ProcessId | None = None
    """The process that trains it; None until it is known."""
    peaks_bytes: tuple[int, ...] = ()
    """The most memory that it was seen to hold on each device, in the order of its shares; empty:
    not seen."""
    settled: bool = False
    """Whether the promise was shrunk to what was seen, which happens once."""
    number: int = 0
    """Number of the reservation among all that were made in its ledger."""

    def counted_bytes(self, device: DeviceId) -> int:
        """Return what admission counts: the promise, or the observed peak where that is larger."""
        number = self.placement.devices.index(device)
        seen = self.peaks_bytes[number] if self.peaks_bytes else 0
        return max(self.placement.shares[number].reservation_bytes, seen)

    @property
    def holder(self) -> ProcessId:
        """The process of the reservation; a negative stand-in where it is not known yet."""
        return self.process or ProcessId(self.placement.node, -1 - self.key)


@dataclass(frozen=True)
class CudaContext:
    """The CUDA context of one of our processes on a device: taken, but maybe not yet visible."""

    ready_seconds: float | None = None
    """Time by `time.monotonic()` at which the process reported that CUDA is up; None: not yet."""
    size_bytes: int | None = None
    """The least that NVML showed of the process beyond torch's memory; None: not known."""
    in_doubt: bool = False
    """Whether the trial ended before CUDA was reported up, so that the context may exist or not."""

    @property
    def is_awaited(self) -> bool:
        return self.ready_seconds is None

    def pending(self, reading_begun_seconds: float) -> bool:
        """Return whether a reading begun at this time may have missed the context."""
        return self.ready_seconds is None or reading_begun_seconds <= self.ready_seconds


@dataclass(frozen=True)
class DeviceLedgerPage:
    """What the ledger knows of one device."""

    reservations: tuple[Reservation, ...] = ()
    contexts: Mapping[ProcessId, CudaContext] = field(default_factory=dict)
    """CUDA contexts on a GPU by process; a process that is not known yet has its stand-in."""
    least_foreign_bytes: int | None = None
    """The least that others were seen to hold; None: nothing was seen yet."""

    @property
    def n_coming(self) -> int:
        """Number of executions that no process is known to have taken yet."""
        return sum(reservation.process is None for reservation in self.reservations)

    @property
    def n_unmeasured_contexts(self) -> int:
        """Number of contexts whose process NVML does not tell."""
        return sum(context.size_bytes is None for context in self.contexts.values())

    def n_pending_contexts(self, reading_begun_seconds: float) -> int:
        return sum(context.pending(reading_begun_seconds) for context in self.contexts.values())

    def has_context(self, process: ProcessId) -> bool:
        """Return whether a trial in that process needs no other context here."""
        context = self.contexts.get(process)
        return context is not None and not context.in_doubt

    def context_bytes(self, process: ProcessId) -> int:
        """Return the bytes of a process's context, as far as they are known not to be foreign
        memory."""
        context = self.contexts.get(process)
        return 0 if context is None else context.size_bytes or 0


_EMPTY_PAGE = DeviceLedgerPage()
_MAX_NEWER = 64
"""Most pages that a snapshot has beside those that it shares with earlier snapshots."""
_LONGEST_JOURNAL = 100_000
"""Most entries of the journal. A reader whose snapshot is of an older journal takes every page as
changed."""
Contexts: TypeAlias = Mapping[tuple[DeviceId, ProcessId], CudaContext]


@dataclass(frozen=True)
class LedgerChanges:
    """Tells which pages changed, in order, as far as one snapshot of a ledger knows."""

    journal: list[DeviceId] = field(default_factory=list)
    """The journal of the ledger, which keeps adding to it."""
    n: int = 0
    """Number of the journal's entries that belong to this snapshot and earlier ones."""

    def since(self, earlier: LedgerChanges) -> set[DeviceId] | None:
        """Return the devices on which something changed since `before`.

        None: `before` is of another ledger, or was taken later.
        """
        if earlier.journal is not self.journal or earlier.n > self.n:
            return None
        return set(self.journal[earlier.n : self.n])


@dataclass(frozen=True)
class LedgerSnapshot:
    """The ledger at one moment."""

    shared_pages: Mapping[DeviceId, DeviceLedgerPage] = field(default_factory=dict)
    """Pages that earlier snapshots have, too."""
    n_reservations: int = 0
    host_peak_bytes: int = 0
    """The most main memory that one of our processes which trains on a GPU was seen to take."""
    changes: LedgerChanges = field(default_factory=LedgerChanges, compare=False)
    by_node: Mapping[str, frozenset[DeviceId]] = field(default_factory=dict)
    """Devices that have a page, by node."""
    newer_pages: Mapping[DeviceId, DeviceLedgerPage] = field(default_factory=dict)
    """Pages that stand in place of shared ones, or are new."""

    @classmethod
    def from_reservations(
        cls,
        reservations: Iterable[Reservation],
        contexts: Contexts | None = None,
        least_foreign: Mapping[DeviceId, int] | None = None,
        host_peak_bytes: int = 0,
    ) -> LedgerSnapshot:
        """Return a ledger as it is expected to be at another moment."""
        numbered = [replace(r, number=n) for n, r in enumerate(reservations)]
        least = least_foreign or {}
        contexts_on: dict[DeviceId, dict[ProcessId, CudaContext]] = defaultdict(dict)
        for (device, process), context in (contexts or {}).items():
            contexts_on[device][process] = context
        reservations_on: dict[DeviceId, list[Reservation]] = defaultdict(list)
        for reservation in numbered:
            for device in reservation.placement.devices:
                reservations_on[device].append(reservation)
        pages = {
            device: DeviceLedgerPage(
                tuple(reservations_on[device]), contexts_on[device], least.get(device)
            )
            for device in {*reservations_on, *contexts_on, *least}
        }
        return cls(pages, len(numbered), host_peak_bytes, by_node=_with_devices({}, pages))

    def on(self, device: DeviceId) -> DeviceLedgerPage:
        return self.newer_pages.get(device) or self.shared_pages.get(device, _EMPTY_PAGE)

    def on_node(self, node: str) -> frozenset[DeviceId]:
        """Return the devices of a machine that have a page."""
        return self.by_node.get(node, frozenset())

    @cached_property
    def pages(self) -> Mapping[DeviceId, DeviceLedgerPage]:
        """The pages of all devices that have one."""
        return {**self.shared_pages, **self.newer_pages}

    @cached_property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations of all devices, in the order in which they were made."""
        found = {r.key: r for page in self.pages.values() for r in page.reservations}
        return tuple(sorted(found.values(), key=lambda r: r.number))

    @property
    def contexts(self) -> Contexts:
        """The CUDA contexts of all devices, by device and process."""
        return {
            (device, process): context
            for device, page in self.pages.items()
            for process, context in page.contexts.items()
        }

    @property
    def least_foreign(self) -> Mapping[DeviceId, int]:
        """The least that others were seen to hold, by device on which anything was seen."""
        found = {device: page.least_foreign_bytes for device, page in self.pages.items()}
        return {device: least for device, least in found.items() if least is not None}


class Ledger:
    """The changing set of reservations. Every reservation is given back exactly once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all fields below
        self._reservations: dict[int, Reservation] = {}
        self._reservations_on: dict[DeviceId, dict[int, Reservation]] = defaultdict(dict)
        self._contexts: dict[DeviceId, dict[ProcessId, CudaContext]] = defaultdict(dict)
        self._least_foreign: dict[DeviceId, int] = {}
        self._host_peak_bytes = 0
        self._shared_pages: dict[DeviceId, DeviceLedgerPage] = {}
        self._newer_pages: dict[DeviceId, DeviceLedgerPage] = {}
        self._changed: set[DeviceId] = set()
        self._journal: list[DeviceId] = []
        self._n_made = 0
        self._by_node: Mapping[str, frozenset[DeviceId]] = {}
        self._snapshot: LedgerSnapshot | None = None
        """The last snapshot, which is valid while nothing has changed."""

    # --- the life of a reservation ---

    def reserve(self, key: int, placement: Placement, process: ProcessId | None = None) -> None:
        with self._lock:
            assert key not in self._reservations, f"execution {key} already holds a reservation"
            self._n_made += 1
            reservation = Reservation(key, placement, process, number=self._n_made)
            self._put(reservation)
            for device in _gpus_of(reservation):
                self._await(device, reservation.holder, CudaContext())

    def release(self, key: int, now_seconds: float) -> None:
        """Give a reservation back.

        A context that is still awaited may have come by now: readings that begin later show it.
        """
        with self._lock:
            assert key in self._reservations, f"execution {key} holds no reservation"
            reservation = self._reservations.pop(key)
            for device in reservation.placement.devices:
                del self._reservations_on[device][key]
                self._changed.add(device)
            for device in _gpus_of(reservation):
                self._doubt(device, reservation, now_seconds)

    @contextmanager
    def releasing(self, key: int, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Give the reservation made before back at the end, however the end comes."""
        try:
            yield
        finally:
            self.release(key, clock())

    def assign(self, key: int, process: ProcessId) -> None:
        """Note the process that trains it; contexts promised without a process belong to it."""
        with self._lock:
            reservation = self._reservations[key]
            self._put(replace(reservation, process=process))
            for device in _gpus_of(reservation):
                if (context := self._contexts[device].pop(reservation.holder, None)) is not None:
                    self._await(device, process, context)

    def observe_peak(self, key: int, *peaks_bytes: int) -> None:
        """Note what it was seen to hold on each of its devices, in their order."""
        with self._lock:
            reservation = self._reservations[key]
            before = reservation.peaks_bytes or (0,) * len(peaks_bytes)
            peaks = tuple(map(max, zip(before, peaks_bytes, strict=True)))
            if peaks != reservation.peaks_bytes:
                self._put(replace(reservation, peaks_bytes=peaks))

    def settle(self, key: int, *sizes_bytes: int) -> bool:
        """Shrink the promise to these sizes on its devices, and return whether it was shrunk.

        The trial no longer has its devices to itself. A promise is never raised, nor put below what
        was seen, nor shrunk again.
        """
        with self._lock:
            reservation = self._reservations[key]
            if reservation.settled:
                return False
            peaks = reservation.peaks_bytes or (0,) * len(sizes_bytes)
            enough = [*map(max, zip(sizes_bytes, peaks, strict=True))]
            placement = reservation.placement.shrunk_to(enough)
            self._put(replace(reservation, placement=placement, settled=True))
            return True

    def context_up(self, key: int, now_seconds: float) -> None:
        """Note that CUDA runs in the trial's process; readings begun later show its contexts as
        foreign."""
        with self._lock:
            reservation = self._reservations[key]
            for device in _gpus_of(reservation):
                context = self._contexts[device].get(reservation.holder)
                if context is not None and context.is_awaited:
                    self._contexts[device][reservation.holder] = CudaContext(now_seconds)
                    self._changed.add(device)

    # --- learning from readings ---

    def note(
        self,
        reading: DeviceReading,
        sizes: Iterable[tuple[DeviceId, ProcessId, int]],
        on: Collection[DeviceId] | None = None,
    ) -> None:
        """Learn from a reading how large contexts are, and which have gone with their processes.

        `on`: devices where this may have changed; None: all devices.
        """
        alive = {process for _, process in reading.reserved_after}
        with self._lock:
            alive |= {reservation.holder for reservation in self._reservations.values()}
            self._note_host(reading)
            for device, process, size in sizes:
                context = self._contexts[device].get(process)
                if context is not None and not context.pending(reading.begun_seconds):
                    least = size if context.size_bytes is None else min(size, context.size_bytes)
                    if least != context.size_bytes:
                        self._contexts[device][process] = replace(context, size_bytes=least)
                        self._changed.add(device)
            for device in [*self._contexts] if on is None else on:
                contexts = self._contexts[device]
                for process, context in [*contexts.items()]:
                    is_kept = process in alive and not context.in_doubt
                    if not is_kept and not context.pending(reading.begun_seconds):
                        del contexts[process]
                        self._changed.add(device)

    def note_foreign(self, seen: Iterable[tuple[DeviceId, int]]) -> None:
        """Note how much others hold of each of these devices."""
        with self._lock:
            for device, foreign_bytes in seen:
                before = self._least_foreign.get(device)
                if before is None or foreign_bytes < before:
                    self._least_foreign[device] = foreign_bytes
                    self._changed.add(device)

    def snapshot(self) -> LedgerSnapshot:
        with self._lock:
            if self._changed or self._snapshot is None:
                self._snapshot = self._make()
            return self._snapshot

    # --- under the lock ---

    def _make(self) -> LedgerSnapshot:
        changed = {
            device: DeviceLedgerPage(
                tuple(self._reservations_on[device].values()),
                dict(self._contexts[device]),
                self._least_foreign.get(device),
            )
            for device in self._changed
        }
        if len(self._journal) >= _LONGEST_JOURNAL:
            self._journal = []  # snapshots keep the old one
        self._journal += self._changed
        self._changed.clear()
        self._by_node = _with_devices(self._by_node, changed)
        self._newer_pages = {**self._newer_pages, **changed}
        if len(self._newer_pages) > _MAX_NEWER:
            self._shared_pages, self._newer_pages = self._shared_pages | self._newer_pages, {}
        return LedgerSnapshot(
            self._shared_pages,
            len(self._reservations),
            self._host_peak_bytes,
            LedgerChanges(self._journal, len(self._journal)),
            self._by_node,
            self._newer_pages,
        )

    def _note_host(self, reading: DeviceReading) -> None:
        """Note the main memory of processes that train on GPUs and have loaded their libraries."""
        most = self._host_peak_bytes
        held = reading.reserved_after.items()
        more = {process: n for (device, process), n in held if n > most and device.on_host}
        for contexts in self._contexts.values() if more else ():
            for process, context in contexts.items():
                if not context.pending(reading.begun_seconds):
                    most = max(most, more.get(process, 0))
        if most != self._host_peak_bytes:
            self._host_peak_bytes, self._snapshot = most, None

    def _put(self, reservation: Reservation) -> None:
        self._reservations[reservation.key] = reservation
        for device in reservation.placement.devices:
            self._reservations_on[device][reservation.key] = reservation
            self._changed.add(device)

    def _await(self, device: DeviceId, process: ProcessId, context: CudaContext) -> None:
        """Add the context that a trial brings, unless it is surely there."""
        contexts = self._contexts[device]
        if process not in contexts or contexts[process].in_doubt:
            contexts[process] = context

    def _doubt(self, device: DeviceId, reservation: Reservation, now_seconds: float) -> None:
        """Decide on a context whose trial has ended, if nobody reported that it is up."""
        context = self._contexts[device].get(reservation.holder)
        shared = any(
            other.holder == reservation.holder for other in self._reservations_on[device].values()
        )
        if context is None or not context.is_awaited or shared:
            return
        if reservation.process is None:
            del self._contexts[device][reservation.holder]  # no process ever had it
        else:
            self._contexts[device][reservation.process] = CudaContext(now_seconds, in_doubt=True)


def _gpus_of(reservation: Reservation) -> list[DeviceId]:
    """Return the GPUs of a reservation, on each of which it brings a CUDA context."""
    return [device for device in reservation.placement.devices if not device.on_host]


def _with_devices(
    by_node: Mapping[str, frozenset[DeviceId]], devices: Iterable[DeviceId]
) -> Mapping[str, frozenset[DeviceId]]:
    """Return the mapping with these devices added; the same object where it has all of them, as it
    nearly always does."""
    new: dict[str, set[DeviceId]] = defaultdict(set)
    for device in devices:
        if device not in by_node.get(device.node, ()):
            new[device.node].add(device)
    if not new:
        return by_node
    return {**by_node, **{n: by_node.get(n, frozenset()) | more for n, more in new.items()}}
