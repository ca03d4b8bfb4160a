"""The accounts of many devices, filed so that a decision looks at few of them.

`policy.place` asks here who would take one device; it comes to the same as looking at all of them,
which it does for trials of several. Devices of thousands that change are filed anew one by one.

    rooms       those that take a known size, by trials and load, then by room: the least that is
                enough is found by halving
    roomiest    the same by their room, the most first: for those of unknown size
    shown       all that are not closed, the roomiest first: for the words of a refusal
    with_idle   those on which processes of ours have nothing to do, by the room without them
    held        those that take no more trials because these are faster among themselves

A machine itself is filed as if it had no GPUs; what is kept for these (`host_share.py`) is looked
at where it comes into question.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from automl.admission.accounting.account import DeviceAccount, context_bytes
from automl.admission.accounting.device_teams import SAME_SIZE
from automl.admission.limits import AdmissionLimits
from automl.trial import DeviceId, DeviceKind, ResourceRequest

_Shelf: TypeAlias = "list[tuple[Any, ...]]"
"""Entries in order; the last part of each tells which device."""
_Filed: TypeAlias = "Sequence[tuple[_Shelf, tuple[Any, ...]]]"
Fits: TypeAlias = Callable[[DeviceAccount], bool]


class DeviceIndex:
    """The devices of one reading. For the main thread."""

    def __init__(self, accounts: Mapping[DeviceId, DeviceAccount], limits: AdmissionLimits) -> None:
        """`accounts` change meanwhile; whose does, is given to `put`."""
        self._accounts, self._limits = accounts, limits
        self._kinds = {kind: _KindIndex() for kind in DeviceKind}
        self._filed: dict[DeviceId, _Filed] = {}
        self._counted: dict[DeviceId, tuple[int, ...]] = {}
        self._first_of_largest: Mapping[DeviceKind, DeviceId] = {}
        self._sizes_changed = True
        self._in_order = _by_team(accounts)
        self._position = {device: n for n, device in enumerate(self._in_order)}
        nodes = {kind: {d.node for d in accounts if d.kind is kind} for kind in DeviceKind}
        self.has_hosts_of_gpus = not nodes[DeviceKind.CPU].isdisjoint(nodes[DeviceKind.GPU])
        for account in accounts.values():
            self._file(account, self._append)
        for of_kind in self._kinds.values():
            of_kind.sort()

    def put(self, account: DeviceAccount) -> None:
        """It is another now."""
        total_bytes = self._counted.get(account.device.address, (0, 0))[1]
        self._sizes_changed |= total_bytes != account.device.total_bytes
        for shelf, entry in self._filed.pop(account.device.address):
            del shelf[bisect.bisect_left(shelf, entry)]
        self._file(account, bisect.insort)

    def follow(self, limits: AdmissionLimits) -> None:
        """Others may share a device from now on, or a machine take more or fewer, by which some are
        full that were not, or the reverse."""
        before, self._limits = self._limits, limits
        if before.sharing is limits.sharing and before.on_hosts is limits.on_hosts:
            return
        as_set = [replace(each, sharing={}, on_hosts={}) for each in (before, limits)]
        assert as_set[0] == as_set[1], "the config lasts"
        changed = {*before.sharing, *limits.sharing}
        if before.on_hosts is not limits.on_hosts:
            changed |= {*before.on_hosts, *limits.on_hosts}
        for device in changed & self._filed.keys():
            if before.on(device) != limits.on(device) or (
                (device in before.sharing) != (device in limits.sharing)
            ):
                self.put(self._accounts[device])

    # --- asking, for one device ---

    def is_open_to(self, request: ResourceRequest) -> bool:
        """Whether a device that is well could take it if nothing else were there."""
        asked = request.memory_bytes
        if not request.alone:
            return any(
                k.well_rooms and (asked or 0) <= max(k.well_rooms) for k in self._of(request)
            )
        least = self.least_of_largest_bytes(request)
        return any(k.well_totals and max(k.well_totals) >= least for k in self._of(request))

    def too_small(self, request: ResourceRequest) -> DeviceAccount | None:
        """The largest device, if even that is too small; None: it is not, or there is none."""
        largest = [self._accounts[d] for d in (self._largest(kind) for kind in request.kinds) if d]
        if request.memory_bytes is None or not largest:
            return None
        found = min(largest, key=lambda a: (-a.empty_room_bytes, self._position[a.device.address]))
        return found if request.memory_bytes > found.empty_room_bytes else None

    def least_of_largest_bytes(self, request: ResourceRequest) -> float:
        """How large a device is at least that counts as one of the largest."""
        return SAME_SIZE * max((max(k.totals, default=0) for k in self._of(request)), default=0)

    def has_places(self, request: ResourceRequest) -> bool:
        """Whether one has not as many trials as it may, or that does not matter."""
        return any(
            bool(k.n_open if self._ignores_places(request, kind) else k.n_with_places)
            for kind, k in self._kinds.items()
            if kind in request.kinds
        )

    def fitting(
        self, request: ResourceRequest, fits: Fits, may_be_there: Callable[[DeviceId], bool]
    ) -> list[DeviceAccount]:
        """The best of each kind that it fits on. `may_be_there`: whether a process that would train
        it may be on the device already, so that no context is added."""
        found: list[DeviceAccount | None] = []
        for kind in request.kinds:
            if request.alone:
                found.append(self._first_empty(request, kind, fits))
            elif request.memory_bytes is None and kind is DeviceKind.GPU:
                found.append(self._roomiest(request, kind, fits))
            else:
                least_bytes = request.memory_bytes or 0
                found.append(self._first(kind, least_bytes, fits, may_be_there))
        return [account for account in found if account is not None]

    def shown(self, request: ResourceRequest) -> DeviceAccount | None:
        """The roomiest that is not closed and has a place; None: all are closed."""
        least = self.least_of_largest_bytes(request) if request.alone else 0
        found: list[tuple[Any, ...]] = []
        for kind in request.kinds:
            for shelf in self._with_places(request, kind, self._kinds[kind].shown):
                of_size = (e for e in shelf if self._at(e).device.total_bytes >= least)
                found += [entry for entry in [next(of_size, None)] if entry is not None]
        return self._at(min(found)) if found else None

    def with_idle(self, request: ResourceRequest, least_bytes: int) -> Iterator[DeviceAccount]:
        """Those that may have so much room once idle processes of ours end there, in the order of
        their nodes."""
        positions: list[int] = []
        for kind in request.kinds:
            for shelf in self._with_places(request, kind, self._kinds[kind].with_idle):
                n = bisect.bisect_right(shelf, (-least_bytes, len(self._in_order)))
                positions += [position for _, position in shelf[:n]]
        least = self.least_of_largest_bytes(request) if request.alone else 0
        found = (self._accounts[self._in_order[position]] for position in sorted(positions))
        return (account for account in found if account.device.total_bytes >= least)

    def held(self, request: ResourceRequest) -> DeviceAccount | None:
        """Of those that take no more because they are faster so, the one with the fewest trials."""
        found = [k.held[0] for k in self._of(request) if k.held]
        return self._at(min(found)) if found else None

    def has_gpus(self, request: ResourceRequest) -> bool:
        return DeviceKind.GPU in request.kinds and self._kinds[DeviceKind.GPU].n_left > 0

    # --- walks ---

    def _first(
        self,
        kind: DeviceKind,
        least_bytes: int,
        fits: Fits,
        may_be_there: Callable[[DeviceId], bool],
    ) -> DeviceAccount | None:
        rooms = self._kinds[kind].rooms
        for where in sorted(rooms):
            found = self._first_on(rooms[where], least_bytes, fits, may_be_there)
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
            if (found := self._first_on(rooms[where], 0, is_largest)) is not None:
                return found
        return None

    def _first_on(
        self,
        shelf: _Shelf,
        least_bytes: int,
        fits: Fits,
        may_be_there: Callable[[DeviceId], bool] = lambda device: True,
    ) -> DeviceAccount | None:
        for n in range(bisect.bisect_left(shelf, (least_bytes,)), len(shelf)):
            room_bytes, device = shelf[n]
            if room_bytes < least_bytes + context_bytes(device) and not may_be_there(device):
                continue  # of thousands very many may have nearly enough
            if fits(account := self._accounts[device]):
                return account
        return None

    def _roomiest(
        self, request: ResourceRequest, kind: DeviceKind, fits: Fits
    ) -> DeviceAccount | None:
        """Of an empty one a trial of unknown size takes all; else it joins where there is room."""
        joins_at = request.joins_at_bytes
        shelves = self._kinds[kind].roomiest
        for occupied in (False,) if joins_at is None else (False, True):
            for entry in shelves[occupied]:
                if occupied and -entry[0] < (joins_at or 0):
                    break
                account = self._accounts[entry[2]]
                if fits(account):
                    return account
        return None

    # --- filing ---

    def _largest(self, kind: DeviceKind) -> DeviceId | None:
        """Lost or not: it lasts as long as the sizes do."""
        if self._sizes_changed:
            first: dict[DeviceKind, DeviceId] = {}
            for device in self._in_order:
                size = self._accounts[device].empty_room_bytes
                known = first.get(device.kind)
                if known is None or size > self._accounts[known].empty_room_bytes:
                    first[device.kind] = device
            self._first_of_largest, self._sizes_changed = first, False
        return self._first_of_largest.get(kind)

    def _of(self, request: ResourceRequest) -> list[_KindIndex]:
        return [of_kind for kind, of_kind in self._kinds.items() if kind in request.kinds]

    def _with_places(
        self, request: ResourceRequest, kind: DeviceKind, shelves: Sequence[_Shelf]
    ) -> Sequence[_Shelf]:
        """The first is of those that have places."""
        return shelves if self._ignores_places(request, kind) else shelves[:1]

    def _ignores_places(self, request: ResourceRequest, kind: DeviceKind) -> bool:
        """Whoever wants one to itself does not wait for a place on it."""
        unknown = request.memory_bytes is None and kind is DeviceKind.GPU
        return request.alone or (unknown and request.joins_at_bytes is None)

    def _at(self, entry: tuple[Any, ...]) -> DeviceAccount:
        return self._accounts[self._in_order[entry[-1]]]

    def _append(self, shelf: _Shelf, entry: tuple[Any, ...]) -> None:
        shelf.append(entry)

    def _file(self, account: DeviceAccount, add: Callable[[_Shelf, tuple[Any, ...]], None]) -> None:
        device = account.device.address
        of_kind, position = self._kinds[device.kind], self._position[device]
        most = self._limits.on(device)
        full = account.n_trials >= most
        filed = [*_entries(of_kind, account, position, full)] if most > 0 else []
        self._filed[device] = filed
        if full and most > 0 and device in self._limits.sharing and not account.device.lost:
            filed.append((of_kind.held, (account.n_trials, position)))
        for shelf, entry in filed:
            add(shelf, entry)
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
    """Devices of one kind."""

    def __init__(self) -> None:
        self.rooms: dict[tuple[int, float], _Shelf] = defaultdict(list)
        self.roomiest: tuple[_Shelf, _Shelf] = ([], [])
        """Without and with trials."""
        self.shown: tuple[_Shelf, _Shelf] = ([], [])
        """With places and without, as the next."""
        self.with_idle: tuple[_Shelf, _Shelf] = ([], [])
        self.held: _Shelf = []
        self.well_rooms: Counter[int] = Counter()
        """How many have so much room if nothing is there, of those that are well."""
        self.well_totals: Counter[int] = Counter()
        self.totals: Counter[int] = Counter()
        """Of those that are not lost."""
        self.n_left = self.n_open = self.n_with_places = 0
        """Of those that are not lost: all, those that take trials, those that take one more."""

    def sort(self) -> None:
        for shelf in [*self.rooms.values(), *self.roomiest, *self.shown, *self.with_idle]:
            shelf.sort()
        self.held.sort()

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
) -> Iterator[tuple[_Shelf, tuple[Any, ...]]]:
    device, room = a.device, a.room_bytes
    if device.fault is None and device.max_processes != 0:
        yield of_kind.shown[full], (-room, position)
    if device.fault is not None or a.exclusive:
        return
    if not full:
        n_trials, load, _, address = a.order
        yield of_kind.rooms[n_trials, load], (room, address)
        yield of_kind.roomiest[n_trials > 0], (-room, n_trials, address)
    if given_back := max(a.idle_bytes, a.foreign_bytes):
        yield of_kind.with_idle[full], (-room - given_back, position)


def _by_team(accounts: Iterable[DeviceId]) -> list[DeviceId]:
    """As they come, but all of one node and kind together."""
    teams: dict[tuple[str, DeviceKind], list[DeviceId]] = {}
    for device in accounts:
        teams.setdefault((device.node, device.kind), []).append(device)
    return [device for team in teams.values() for device in team]
