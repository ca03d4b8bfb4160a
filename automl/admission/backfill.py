"""Decides which trial may start before the head of the queue without delaying it. Pure.

This is EASY backfill (Lifka, 1995, https://doi.org/10.1007/3-540-60153-8_35). The head has a
promise: devices, and the time from which it fits there. Another trial may start now if the head
still fits there then. With exact durations the head never starts later for it. With rough durations
it may, but no trial overtakes it once the promised time has come, so it does not starve.

Only `placement_policy.place_trial` decides whether a trial fits. It is asked about a
`PlacementSituation`: the devices as they are now, with one trial more, or as they are expected to
be when some running trials have ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Contexts, CudaContext, LedgerSnapshot, Reservation
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import DeviceId, Placement, ProcessId, ResourceRequest, host_device_of

_Held: TypeAlias = Mapping[tuple[DeviceId, ProcessId], int]


@dataclass(frozen=True)
class PlacementSituation:
    """All that placing depends on at one moment, and when what runs is expected to end."""

    reading: DeviceReading
    ledger: LedgerSnapshot
    limits: AdmissionLimits
    now_seconds: float
    process: ProcessId | None = None
    idle: Idle = field(default_factory=dict)
    ends_seconds: Mapping[int, float] = field(default_factory=dict)
    """Expected end by the key of each reservation; a reservation that is not named has no known
    end."""
    table: DeviceTable | None = None
    """The table of this reading and this ledger, where it is kept between decisions."""
    devices_are_partial: bool = False
    """Whether the reading covers only some of the devices."""

    def place(
        self, request: ResourceRequest, devices: Collection[DeviceId] | None = None
    ) -> Placement | AdmissionRefusal:
        """Place the request, on one of these devices if they are named."""
        here = self if devices is None else self._only(devices)
        return place_trial(
            request,
            here.reading,
            here.ledger,
            here.limits,
            now_seconds=here.now_seconds,
            process=here.process,
            idle=here.idle,
            table=here.table,
            devices_are_partial=here.devices_are_partial,
        )

    def may_have_room(
        self, request: ResourceRequest, devices: Collection[DeviceId], at_seconds: float
    ) -> bool:
        """Return whether the request may fit on one of these devices at that time, by what is
        promised there.

        A request for a device to itself needs one without trials. The check is quick, and never
        False where `place_trial` finds room.
        """
        asked = request.memory_bytes or 0
        for device in filter(None, map(self.reading.find, devices)):
            promised = self._promised(device.address, at_seconds)
            if asked <= device.total_bytes - sum(promised) and not (request.alone and promised):
                return True
        return False

    def later(self, at_seconds: float, devices: Collection[DeviceId]) -> PlacementSituation:
        """Return the situation of these devices at that time: trials that will have ended are gone,
        and their processes are idle."""
        ended = [r for r in self.ledger.reservations if self._end(r) <= at_seconds]
        here = self._only(devices)
        ended_here = [r for r in ended if not here.devices.isdisjoint(r.placement.devices)]
        idle = {place: list(processes) for place, processes in self.idle.items()}
        for r in ended_here if self.process is None else ():
            idle.setdefault(r.placement.devices, []).append(r.holder)
        later_ledger = self._ledger_at(at_seconds)
        working = {r.holder for r in later_ledger.reservations}
        return replace(
            here,
            reading=self._less_busy(
                _given_back(here.reading, ended_here, working),
                Counter(r.placement.node for r in ended),
            ),
            ledger=later_ledger,
            idle=idle,
        )

    def once_contexts_show(self) -> PlacementSituation:
        """Return the situation as if CUDA contexts that are still to come took nothing, which is
        the most room that they may leave."""
        contexts = {
            where: replace(context, ready_seconds=-math.inf)
            for where, context in self.ledger.contexts.items()
        }
        return replace(
            self,
            ledger=self._ledger_of(self.ledger.reservations, contexts),
            table=None,
        )

    def with_one_more(
        self, key: int, placement: Placement, end_seconds: float
    ) -> PlacementSituation:
        """Return the situation once this trial has started, in an idle process of its devices or a
        new one."""
        idle = {place: list(processes) for place, processes in self.idle.items()}
        waiting = idle.get(placement.devices, [])
        process = self.process or (waiting.pop() if waiting else None)
        new = Reservation(key, placement, process)
        node = placement.node
        # The reading does not show the load of a process that is still to come.
        is_known = process in self.reading.held_after_on(host_device_of(node))
        contexts = dict(self.ledger.contexts)
        for device in placement.devices:
            if not device.on_host:
                contexts.setdefault((device, new.holder), CudaContext())
        return replace(
            self,
            reading=self._less_busy(self.reading, {node: -1} if is_known else {}),
            ledger=self._ledger_of((*self.ledger.reservations, new), contexts),
            idle=idle,
            ends_seconds={**self.ends_seconds, key: end_seconds},
            table=None,
        )

    def ends_on(self, devices: Collection[DeviceId]) -> list[float]:
        """Return the times at which a trial is expected to end on these devices, in order."""
        ends = {
            max(self._end(r), self.now_seconds)
            for device in devices
            for r in self.ledger.on(device).reservations
        }
        return sorted(ends - {math.inf})

    @property
    def awaits_contexts(self) -> bool:
        """Whether there may be CUDA contexts that the reading does not show yet."""
        begun = self.reading.begun_seconds
        return any(context.pending(begun) for context in self.ledger.contexts.values())

    @property
    def devices(self) -> frozenset[DeviceId]:
        return frozenset(device.address for device in self.reading.devices)

    def _ledger_of(self, held: Iterable[Reservation], contexts: Contexts) -> LedgerSnapshot:
        ledger = self.ledger
        return LedgerSnapshot.from_reservations(
            held, contexts, ledger.least_foreign, ledger.host_peak_bytes
        )

    def _ledger_at(self, at_seconds: float) -> LedgerSnapshot:
        """Return the ledger of what still runs at that time; its processes are known by then."""
        stays = {
            r.key: r if r.process else replace(r, process=r.holder)
            for r in self.ledger.reservations
            if self._end(r) > at_seconds
        }
        changed = {
            device
            for r in self.ledger.reservations
            if stays.get(r.key) is not r
            for device in r.placement.devices
        }
        pages = {**self.ledger.pages}
        for device in changed:
            held = tuple(stays[r.key] for r in pages[device].reservations if r.key in stays)
            pages[device] = replace(pages[device], reservations=held)
        ledger = self.ledger
        return LedgerSnapshot(pages, len(stays), ledger.host_peak_bytes, by_node=ledger.by_node)

    def _less_busy(self, reading: DeviceReading, n_cores: Mapping[str, int]) -> DeviceReading:
        """Return the reading with this number of cores of each machine free.

        Main memory stays taken, since the processes are kept.
        """
        changed = {}
        for node, n in n_cores.items():
            host = reading.hosts.get(node)
            if host is not None and host.busy is not None:
                busy = max(0.0, host.busy - n / self.limits.beside_gpus(node, host))
                changed[node] = replace(host, busy=busy)
        return replace(reading, hosts={**reading.hosts, **changed}) if changed else reading

    def _end(self, reservation: Reservation) -> float:
        return self.ends_seconds.get(reservation.key, math.inf)

    def _promised(self, device: DeviceId, at_seconds: float) -> list[int]:
        """Return the bytes promised to each trial that still runs at that time."""
        held = self.ledger.on(device).reservations
        return [r.counted_bytes(device) for r in held if self._end(r) > at_seconds]

    def _only(self, devices: Collection[DeviceId]) -> PlacementSituation:
        there = tuple(d for d in self.reading.devices if d.address in devices)
        devices_are_partial = self.devices_are_partial or len(there) < len(self.reading.devices)
        return replace(
            self,
            reading=replace(self.reading, devices=there),
            table=None,
            devices_are_partial=devices_are_partial,
        )


def _given_back(
    reading: DeviceReading, ended: Sequence[Reservation], working: Collection[ProcessId]
) -> DeviceReading:
    """Return the reading without what the ended trials held.

    This is all that torch has in their processes. Where others train in the same process, it is at
    most what the ended trials were promised.
    """
    given_bytes: dict[tuple[DeviceId, ProcessId], int] = {}
    for r in ended:
        for device in r.placement.devices:
            place = (device, r.holder)
            before = reading.reserved_before.get(place, 0)
            held = min(before, reading.reserved_after.get(place, 0))
            if r.holder in working:
                held = min(held, given_bytes.get(place, 0) + r.counted_bytes(device))
            given_bytes[place] = held

    def without_given_back(held: _Held) -> _Held:
        fewer = {p: max(0, held[p] - size) for p, size in given_bytes.items() if p in held}
        return {**held, **fewer}

    return replace(
        reading,
        devices=tuple(_freed(device, given_bytes) for device in reading.devices),
        reserved_before=without_given_back(reading.reserved_before),
        reserved_after=without_given_back(reading.reserved_after),
    )


def _freed(device: DeviceSnapshot, given_bytes: _Held) -> DeviceSnapshot:
    here = {
        process.pid: size
        for (where, process), size in given_bytes.items()
        if where == device.address
    }
    processes = tuple(
        replace(
            p,
            used_bytes=None if p.used_bytes is None else max(0, p.used_bytes - here[p.pid]),
            least_bytes=None if p.least_bytes is None else max(0, p.least_bytes - here[p.pid]),
        )
        if p.pid in here
        else p
        for p in device.processes
    )
    free = min(device.total_bytes, device.free_bytes + sum(here.values()))
    return replace(device, free_bytes=free, processes=processes)


@dataclass(frozen=True)
class StartPromise:
    """Where the head of the queue will start, and the earliest time."""

    devices: frozenset[DeviceId]
    at_seconds: float
    at_once: bool = True
    """Whether the head can start at that time at once; False: idle processes have to end first."""
    soonest_seconds: float | None = None
    """Time from which the head may fit if contexts that are to come leave some of their reserved
    memory free. None: it does not fit sooner for that."""


def promise_start(head: ResourceRequest, now: PlacementSituation) -> StartPromise | None:
    """Return the earliest start of the head; None: no end is known of what is in its way."""
    found = _earliest(head, now)
    if found is None or not now.awaits_contexts:
        return found
    hoped = now.once_contexts_show()
    decision = hoped.place(head)
    if isinstance(decision, Placement) or decision.in_the_way:
        return replace(found, soonest_seconds=now.now_seconds)
    sooner = _earliest(head, hoped)
    if sooner is None or sooner.at_seconds >= found.at_seconds:
        return found
    return replace(found, soonest_seconds=sooner.at_seconds)


def _earliest(head: ResourceRequest, now: PlacementSituation) -> StartPromise | None:
    """Return the earliest start, with the situations tried in the order of the expected ends.

    The search stops at the first answer, so later situations are never computed. At equal times the
    device that is read first wins.
    """
    choices = [*_choices(head, now)]
    ends = [(at, n) for n, devices in enumerate(choices) for at in now.ends_on(devices)]
    for at_seconds, n in sorted(ends):
        if not now.may_have_room(head, choices[n], at_seconds):
            continue
        decision = now.later(at_seconds, choices[n]).place(head)
        if isinstance(decision, Placement):
            return StartPromise(frozenset(decision.devices), at_seconds)
        if decision.in_the_way:
            return StartPromise(decision.in_the_way, at_seconds, at_once=False)
    return None


def find_overtaking(
    request: ResourceRequest,
    key: int,
    seconds: float,
    head: ResourceRequest,
    promised: StartPromise,
    now: PlacementSituation,
) -> Placement | None:
    """Return where this trial may start now and run for `seconds`; None: it would delay the head.

    It has to be over before the promised time, early enough for a reading to show it.
    """
    if now.now_seconds >= promised.at_seconds:
        return None
    end_seconds = now.now_seconds + seconds + now.limits.stale_seconds
    if promised.soonest_seconds is not None and end_seconds > promised.soonest_seconds:
        return None  # the head may start then, and leave less room than is known now
    elsewhere = now.devices - promised.devices
    for devices in (None, elsewhere) if elsewhere else (None,):
        placement = now.place(request, devices)
        if isinstance(placement, AdmissionRefusal):
            return None
        then = now.with_one_more(key, placement, end_seconds)
        if _is_kept(promised, then.later(promised.at_seconds, promised.devices).place(head)):
            return placement
    return None


def _choices(head: ResourceRequest, now: PlacementSituation) -> Iterator[frozenset[DeviceId]]:
    """Yield the sets of devices to try. A request for several devices, or for the largest, gets all
    devices at once."""
    if head.n_devices > 1 or head.alone:
        yield now.devices
        return
    for device in now.reading.devices:
        yield frozenset({device.address})


def _is_kept(promised: StartPromise, decision: Placement | AdmissionRefusal) -> bool:
    if isinstance(decision, Placement):
        return True
    return not promised.at_once and bool(decision.in_the_way)
