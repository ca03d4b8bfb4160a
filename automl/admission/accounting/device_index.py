"""Indexes the accounts of many devices, so that a decision looks at few of them.

`placement_policy.place_trial` uses it for trials of one device. The result is the same as looking
at all devices, which it does for trials of several. A device that changes is indexed anew alone.

    rooms           devices that take a known size, by trials and load, then by room: a binary
                    search finds the least room that is enough
    roomiest        the same devices, the one with the most room first: for trials of unknown size
    open_by_room    all devices that are not closed, the roomiest first: for the words of a refusal
    with_idle       devices on which processes of ours are idle, by the room without these processes
    full_by_pace    devices that take no more trials because these are faster among themselves

A machine itself is indexed as if it had no GPUs. What is kept for these (`host_share.py`) is
considered only where the machine comes into question.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from automl.admission.accounting.account import DeviceAccount, context_bytes
from automl.admission.accounting.device_teams import SAME_SIZE_FRACTION
from automl.admission.limits import AdmissionLimits
from automl.trial import DeviceId, DeviceKind, ResourceRequest

_SortedEntries: TypeAlias = "list[tuple[Any, ...]]"
"""Entries in ascending order; the last part of each tells which device it is."""
_EntryPlaces: TypeAlias = "Sequence[tuple[_SortedEntries, tuple[Any, ...]]]"
Fits: TypeAlias = Callable[[DeviceAccount], bool]


class DeviceIndex:
    """Finds devices of one reading for a request of one device. For the main thread."""

    def __init__(self, accounts: Mapping[DeviceId, DeviceAccount], limits: AdmissionLimits) -> None:
        """Index the accounts. `accounts` may change later; each change is passed to `put`."""
        self._accounts, self._limits = accounts, limits
        self._kinds = {kind: _KindIndex() for kind in DeviceKind}
        self._places_of: dict[DeviceId, _EntryPlaces] = {}
        self._counted: dict[DeviceId, tuple[int, ...]] = {}
        self._first_of_largest: Mapping[DeviceKind, DeviceId] = {}
        self._sizes_changed = True
        self._in_order = _by_team(accounts)
        self._position = {device: n for n, device in enumerate(self._in_order)}
        nodes = {kind: {d.node for d in accounts if d.kind is kind} for kind in DeviceKind}
        self.has_hosts_of_gpus = not nodes[DeviceKind.CPU].isdisjoint(nodes[DeviceKind.GPU])
        for account in accounts.values():
            self._insert(account, self._append)
        for of_kind in self._kinds.values():
            of_kind.sort()

    def put(self, account: DeviceAccount) -> None:
        """Index anew a device whose account has changed."""
        total_bytes = self._counted.get(account.device.address, (0, 0))[1]
        self._sizes_changed |= total_bytes != account.device.total_bytes
        for entries, entry in self._places_of.pop(account.device.address):
            del entries[bisect.bisect_left(entries, entry)]
        self._insert(account, bisect.insort)

    def follow(self, limits: AdmissionLimits) -> None:
        """Take new limits of how many trials share a device or a machine.

        Devices that become full by them, or are full no more, are indexed anew.
        """
        before, self._limits = self._limits, limits
        if before.sharing is limits.sharing and before.on_hosts is limits.on_hosts:
            return
        as_set = [replace(each, sharing={}, on_hosts={}) for each in (before, limits)]
        assert as_set[0] == as_set[1], "the config lasts"
        changed = {*before.sharing, *limits.sharing}
        if before.on_hosts is not limits.on_hosts:
            changed |= {*before.on_hosts, *limits.on_hosts}
        for device in changed & self._places_of.keys():
            if before.on(device) != limits.on(device) or (
                (device in before.sharing) != (device in limits.sharing)
            ):
                self.put(self._accounts[device])

    # --- questions about one device ---

    def is_open_to(self, request: ResourceRequest) -> bool:
        """Return whether a device that is well could take the request if nothing else were
        there."""
        asked_bytes = request.memory_bytes
        if not request.alone:
            return any(
                k.well_rooms and (asked_bytes or 0) <= max(k.well_rooms)
                for k in self._of_kinds(request)
            )
        least = self.least_of_largest_bytes(request)
        return any(k.well_totals and max(k.well_totals) >= least for k in self._of_kinds(request))

    def too_small(self, request: ResourceRequest) -> DeviceAccount | None:
        """Return the largest device if even it is too small; None: it is not, or there is none."""
        largest = [self._accounts[d] for d in (self._largest(kind) for kind in request.kinds) if d]
        if request.memory_bytes is None or not largest:
            return None
        found = min(largest, key=lambda a: (-a.empty_room_bytes, self._position[a.device.address]))
        return found if request.memory_bytes > found.empty_room_bytes else None

    def least_of_largest_bytes(self, request: ResourceRequest) -> float:
        """Return the least size of a device that counts as one of the largest."""
        return SAME_SIZE_FRACTION * max(
            (max(k.totals, default=0) for k in self._of_kinds(request)), default=0
        )

    def has_places(self, request: ResourceRequest) -> bool:
        """Return whether some device has fewer trials than it may, or the request does not need a
        place."""
        return any(
            bool(k.n_open if self._ignores_places(request, kind) else k.n_with_places)
            for kind, k in self._kinds.items()
            if kind in request.kinds
        )

    def fitting(
        self, request: ResourceRequest, fits: Fits, may_be_there: Callable[[DeviceId], bool]
    ) -> list[DeviceAccount]:
        """Return the best device of each kind on which the request fits.

        `may_be_there`: whether a process that would train the trial may be on the device already,
        so that no context is added.
        """
        found: list[DeviceAccount | None] = []
        for kind in request.kinds:
            if request.alone:
                found.append(self._first_empty(request, kind, fits))
            elif request.memory_bytes is None and kind is DeviceKind.GPU:
                found.append(self._roomiest_fitting(request, kind, fits))
            else:
                least_bytes = request.memory_bytes or 0
                found.append(self._first_fitting(kind, least_bytes, fits, may_be_there))
        return [account for account in found if account is not None]

    def open_by_room(self, request: ResourceRequest) -> DeviceAccount | None:
        """Return the roomiest device that is not closed and has a place; None: all are closed."""
        least = self.least_of_largest_bytes(request) if request.alone else 0
        found: list[tuple[Any, ...]] = []
        for kind in request.kinds:
            for entries in self._with_places(request, kind, self._kinds[kind].open_by_room):
                of_size = (e for e in entries if self._account_at(e).device.total_bytes >= least)
                found += [entry for entry in [next(of_size, None)] if entry is not None]
        return self._account_at(min(found)) if found else None

    def with_idle(self, request: ResourceRequest, least_bytes: int) -> Iterator[DeviceAccount]:
        """Return devices that may have this much room once idle processes of ours end there.

        The order is that of their nodes.
        """
        positions: list[int] = []
        for kind in request.kinds:
            for entries in self._with_places(request, kind, self._kinds[kind].with_idle):
                n = bisect.bisect_right(entries, (-least_bytes, len(self._in_order)))
                positions += [position for _, position in entries[:n]]
        least = self.least_of_largest_bytes(request) if request.alone else 0
        found = (self._accounts[self._in_order[position]] for position in sorted(positions))
        return (account for account in found if account.device.total_bytes >= least)

    def full_by_pace(self, request: ResourceRequest) -> DeviceAccount | None:
        """Return the device with the fewest trials among those that take no more because more would
        be slower."""
        found = [k.full_by_pace[0] for k in self._of_kinds(request) if k.full_by_pace]
        return self._account_at(min(found)) if found else None

    def has_gpus(self, request: ResourceRequest) -> bool:
        return DeviceKind.GPU in request.kinds and self._kinds[DeviceKind.GPU].n_left > 0

    # --- searching ---

    def _first_fitting(
        self,
        kind: DeviceKind,
        least_bytes: int,
        fits: Fits,
        may_be_there: Callable[[DeviceId], bool],
    ) -> DeviceAccount | None:
        rooms = self._kinds[kind].rooms
        for where in sorted(rooms):
            found = self._first_fitting_in(rooms[where], least_bytes, fits, may_be_there)
            if found is not None:
                return found
        return None

    def _first_empty(
        self, request: ResourceRequest, kind: DeviceKind, fits: Fits
    ) -> DeviceAccount | None:
        rooms, least = self._kinds[kind].rooms, self.least_of_largest_bytes(request)

        def is_largest(account: DeviceAccount) -> bool:
            return account.device.total_bytes >= least and fits(account)

        for where in sorted(where for where in rooms if where[0] == 0):
            if (found := self._first_fitting_in(rooms[where], 0, is_largest)) is not None:
                return found
        return None

    def _first_fitting_in(
        self,
        entries: _SortedEntries,
        least_bytes: int,
        fits: Fits,
        may_be_there: Callable[[DeviceId], bool] = lambda device: True,
    ) -> DeviceAccount | None:
        for n in range(bisect.bisect_left(entries, (least_bytes,)), len(entries)):
            room_bytes, device = entries[n]
            if room_bytes < least_bytes + context_bytes(device) and not may_be_there(device):
                continue  # very many devices of thousands may have nearly enough room
            if fits(account := self._accounts[device]):
                return account
        return None

    def _roomiest_fitting(
        self, request: ResourceRequest, kind: DeviceKind, fits: Fits
    ) -> DeviceAccount | None:
        """Return the roomiest device on which the request fits.

        A trial of unknown size takes all of an empty device; else it joins others where there is
        room.
        """
        joins_at = request.joins_at_bytes
        lists = self._kinds[kind].roomiest
        for occupied in (False,) if joins_at is None else (False, True):
            for entry in lists[occupied]:
                if occupied and -entry[0] < (joins_at or 0):
                    break
                account = self._accounts[entry[2]]
                if fits(account):
                    return account
        return None

    # --- indexing ---

    def _largest(self, kind: DeviceKind) -> DeviceId | None:
        """Return the largest device of a kind, lost or not: it stays the same as long as the sizes
        do."""
        if self._sizes_changed:
            first: dict[DeviceKind, DeviceId] = {}
            for device in self._in_order:
                size = self._accounts[device].empty_room_bytes
                known = first.get(device.kind)
                if known is None or size > self._accounts[known].empty_room_bytes:
                    first[device.kind] = device
            self._first_of_largest, self._sizes_changed = first, False
        return self._first_of_largest.get(kind)

    def _of_kinds(self, request: ResourceRequest) -> list[_KindIndex]:
        return [of_kind for kind, of_kind in self._kinds.items() if kind in request.kinds]

    def _with_places(
        self, request: ResourceRequest, kind: DeviceKind, lists: Sequence[_SortedEntries]
    ) -> Sequence[_SortedEntries]:
        """Return the lists to search: the first is that of devices that have places."""
        return lists if self._ignores_places(request, kind) else lists[:1]

    def _ignores_places(self, request: ResourceRequest, kind: DeviceKind) -> bool:
        """Return whether the request needs no free place, because it wants a device to itself."""
        unknown = request.memory_bytes is None and kind is DeviceKind.GPU
        return request.alone or (unknown and request.joins_at_bytes is None)

    def _account_at(self, entry: tuple[Any, ...]) -> DeviceAccount:
        return self._accounts[self._in_order[entry[-1]]]

    def _append(self, entries: _SortedEntries, entry: tuple[Any, ...]) -> None:
        entries.append(entry)

    def _insert(
        self, account: DeviceAccount, add: Callable[[_SortedEntries, tuple[Any, ...]], None]
    ) -> None:
        device = account.device.address
        of_kind, position = self._kinds[device.kind], self._position[device]
        most = self._limits.on(device)
        full = account.n_trials >= most
        places = [*_entries(of_kind, account, position, full)] if most > 0 else []
        self._places_of[device] = places
        if full and most > 0 and device in self._limits.sharing and not account.device.lost:
            places.append((of_kind.full_by_pace, (account.n_trials, position)))
        for entries, entry in places:
            add(entries, entry)
        self._count(of_kind, account, full)

    def _count(self, of_kind: _KindIndex, account: DeviceAccount, full: bool) -> None:
        device = account.device
        of_kind.uncount(*self._counted.get(device.address, ()))
        counts = (
            account.empty_room_bytes if device.fault is None else -1,
            device.total_bytes,
            int(not device.lost),
            int(not device.lost and self._limits.on(device.address) > 0),
            int(not device.lost and not full),
        )
        of_kind.count(*counts)
        self._counted[device.address] = counts


class _KindIndex:
    """Sorted lists and counts of the devices of one kind."""

    def __init__(self) -> None:
        self.rooms: dict[tuple[int, float], _SortedEntries] = defaultdict(list)
        self.roomiest: tuple[_SortedEntries, _SortedEntries] = ([], [])
        """Devices without trials, and devices with trials."""
        self.open_by_room: tuple[_SortedEntries, _SortedEntries] = ([], [])
        """Devices with places, and devices without."""
        self.with_idle: tuple[_SortedEntries, _SortedEntries] = ([], [])
        """Devices with places, and devices without."""
        self.full_by_pace: _SortedEntries = []
        self.well_rooms: Counter[int] = Counter()
        """Number of devices that are well, by their room if nothing else is there."""
        self.well_totals: Counter[int] = Counter()
        """Number of devices that are well, by their size."""
        self.totals: Counter[int] = Counter()
        """Number of devices that are not lost, by their size."""
        self.n_left = self.n_open = self.n_with_places = 0
        """Number of devices that are not lost; those that take trials; those that take one more."""

    def sort(self) -> None:
        for entries in [*self.rooms.values(), *self.roomiest, *self.open_by_room, *self.with_idle]:
            entries.sort()
        self.full_by_pace.sort()

    def count(self, room: int, total: int, *left_open_places: int, sign: int = 1) -> None:
        left, is_open, places = left_open_places
        if room >= 0:
            _change(self.well_rooms, room, sign)
            _change(self.well_totals, total, sign)
        if left:
            _change(self.totals, total, sign)
        self.n_left += sign * left
        self.n_open += sign * is_open
        self.n_with_places += sign * places

    def uncount(self, *counts: int) -> None:
        if counts:
            self.count(*counts, sign=-1)


def _change(counter: Counter[int], value: int, by: int) -> None:
    counter[value] += by
    if not counter[value]:
        del counter[value]


def _entries(
    of_kind: _KindIndex, a: DeviceAccount, position: int, full: bool
) -> Iterator[tuple[_SortedEntries, tuple[Any, ...]]]:
    device, room = a.device, a.room_bytes
    if device.fault is None and device.max_processes != 0:
        yield of_kind.open_by_room[full], (-room, position)
    if device.fault is not None or a.exclusive:
        return
    if not full:
        n_trials, load, _, address = a.order
        yield of_kind.rooms[n_trials, load], (room, address)
        yield of_kind.roomiest[n_trials > 0], (-room, n_trials, address)
    if given_back := max(a.idle_bytes, a.foreign_bytes):
        yield of_kind.with_idle[full], (-room - given_back, position)


def _by_team(accounts: Iterable[DeviceId]) -> list[DeviceId]:
    """Return the devices in their order, with those of one node and kind together."""
    teams: dict[tuple[str, DeviceKind], list[DeviceId]] = {}
    for device in accounts:
        teams.setdefault((device.node, device.kind), []).append(device)
    return [device for team in teams.values() for device in team]
