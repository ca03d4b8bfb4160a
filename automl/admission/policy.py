"""Whether a trial may start now, and on which devices. Pure: no lock, no clock, no NVML, no torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit, here and over all
              and  the device is well  and  its host has main memory and cores for one more

on each of the devices it asks for, all of them on one node, or nothing. `account.py` has the
formula of room, `host_share.py` that of the host, `reasons.py` the words of a refusal.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from automl.admission.account import Accounts, DeviceAccount, context_bytes
from automl.admission.governor import Sharing
from automl.admission.host_share import (
    HostRoom,
    HostShare,
    Kept,
    host_room,
    kept_for_gpus,
    n_left_for_cpu,
)
from automl.admission.ledger import LedgerSnapshot
from automl.admission.reasons import (
    Refusal,
    RefusalKind,
    all_taken,
    at_limit,
    full_by_pace,
    no_host_room,
    no_room,
    no_such_devices,
    only_on_drained,
    too_large,
    unfit,
)
from automl.devices.device import Reading
from automl.trial import LOCAL_NODE, DeviceId, DeviceKind, Placement, ProcessId, Request, Share

Idle: TypeAlias = Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]
"""Processes of ours in which nothing runs, by their devices."""

_SAME_SIZE = 0.99
"""Devices of one model differ a little in what the driver leaves of them."""


@dataclass(frozen=True)
class Limits:
    """What the config sets for admission."""

    max_concurrent_trials: int | None
    """Over all devices; None: as many as they take."""
    headroom_bytes: int
    stale_seconds: float
    max_per_gpu: int = 16
    max_on_host: int = 16
    """What the machine's cores keep busy."""
    sharing: Mapping[DeviceId, Sharing] = field(default_factory=dict)
    """What was found of how many trials share a device; who is not named has no such limit."""
    gpus_per_trial: int = 1
    helpers_bytes: int = 0
    """Main memory of the processes that a trial's own one starts, beside its own."""

    def on(self, device: DeviceId) -> int:
        """The most trials on a device."""
        most = self.max_on_host if device.on_host else self.max_per_gpu
        found = self.sharing.get(device)
        return most if found is None else min(most, found.n_most)

    def at_once(self, devices: Collection[DeviceId]) -> int:
        """The most trials over these devices; at least 1."""
        on_gpus = sum(self.on(device) for device in devices if not device.on_host)
        on_hosts = sum(self.on(device) for device in devices if device.on_host)
        most = on_hosts + on_gpus // self.gpus_per_trial
        cap = self.max_concurrent_trials
        return max(1, most if cap is None else min(most, cap))


def place(
    request: Request,
    reading: Reading | None,
    ledger: LedgerSnapshot,
    limits: Limits,
    *,
    now_seconds: float,
    process: ProcessId | None = None,
    idle: Idle | None = None,
    accounts: Accounts | None = None,
    some: bool = False,
) -> Placement | Refusal:
    """Choose devices, or say why there are none.

    Trials spread over devices first (fewest trials, then least busy): idle GPUs are the greater
    waste, and first come, first served already keeps large requests from starving. Among equals
    the device left with the least room is taken, so that large requests find one whole.

    Parameters
    ----------
    process: that which would train it, where it is known before (threads of this process).
    idle: those that could be used again, or ended for their memory.
    accounts: where those of earlier calls are kept, so that only what changed is added up.
    some: the reading is of some of the devices, so whether it fits at all is another's to say.
    now_seconds: `time.monotonic()`.
    """
    if (unseen := unfit(reading, limits.stale_seconds, now_seconds)) is not None:
        return unseen
    assert reading is not None
    accounts = accounts or Accounts()
    in_threads = process is not None
    known = reading.host is not None
    share = accounts.host_share(reading, ledger) if known else HostShare()
    kept = kept_for_gpus(reading, ledger, share, idle or {}, in_threads=in_threads)
    everything = _beside(accounts.of(reading, ledger, limits.headroom_bytes), kept)
    if (closed := _closed(request, everything, some)) is not None:
        return closed
    cap = limits.max_concurrent_trials
    if cap is not None and len(ledger.reservations) >= cap:
        return at_limit(cap)
    teams = _teams(request, _left(everything))
    if request.alone:
        teams = _largest(request, teams)
    n_on_host = n_left_for_cpu(limits.max_on_host, kept, share)
    free = _with_places(request, teams, limits, n_on_host)
    if not free:
        return _full([a for team in teams for a in team], limits, n_on_host)
    host = host_room(
        reading,
        ledger,
        share,
        headroom_bytes=limits.headroom_bytes,
        n_cores_allow=limits.max_on_host,
        helpers_bytes=limits.helpers_bytes,
        in_threads=in_threads,
    )
    return _Asked(request, ledger, process, idle or {}, host).decide(free)


def _left(accounts: Sequence[DeviceAccount]) -> Sequence[DeviceAccount]:
    return [a for a in accounts if not a.device.lost]


def _closed(request: Request, accounts: Sequence[DeviceAccount], some: bool) -> Refusal | None:
    """Why it could not start even if nothing else ran: on no device, or on none that is well."""
    if (never := _never(request, accounts, some)) is not None:
        return never
    left, well = _left(accounts), [a for a in accounts if a.device.fault is None]
    if len(well) == len(accounts):
        return None
    drained = [a.device for a in accounts if a.device.fault is not None]
    if _never(request, left) is not None:
        return only_on_drained(request, drained, RefusalKind.LOST)
    largest = _largest(request, _teams(request, left)) if request.alone else [left]
    fit = [a for team in largest for a in team if a.device.fault is None]
    if well and _never(request, fit) is not None:
        return only_on_drained(request, drained, RefusalKind.DRAINED)
    return None


def _teams(
    request: Request, accounts: Sequence[DeviceAccount]
) -> Sequence[Sequence[DeviceAccount]]:
    """The devices of each node and kind that could serve the request at all, if enough."""
    teams: dict[tuple[str, DeviceKind], list[DeviceAccount]] = {}
    for a in accounts:
        if a.device.address.kind in request.kinds:
            address = a.device.address
            teams.setdefault((address.node, address.kind), []).append(a)
    return [team for team in teams.values() if len(team) >= request.n_devices]


def _never(
    request: Request, accounts: Sequence[DeviceAccount], some: bool = False
) -> Refusal | None:
    """Not even if nothing else were there. Of some devices the size tells nothing: with a context
    that is there already it may fit on one that is too small for it and a new one."""
    teams = _teams(request, accounts)
    if not teams:
        return no_such_devices(request, _most_devices(request, accounts))
    if request.memory_bytes is None or some:
        return None
    tightest = max((_nth_largest(request.n_devices, team) for team in teams), key=_empty_room)
    fits = request.memory_bytes <= tightest.empty_room_bytes
    return None if fits else too_large(request, tightest)


def _most_devices(request: Request, accounts: Sequence[DeviceAccount]) -> int:
    counts: dict[tuple[str, DeviceKind], int] = {}
    for a in accounts:
        where = (a.device.address.node, a.device.address.kind)
        counts[where] = counts.get(where, 0) + (a.device.address.kind in request.kinds)
    return max(counts.values(), default=0)


def _largest(
    request: Request, teams: Sequence[Sequence[DeviceAccount]]
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each node its devices of the largest size, on those nodes that have the largest."""
    sizes = [_nth_largest(request.n_devices, team).device.total_bytes for team in teams]
    least = _SAME_SIZE * max(sizes)
    large = [[a for a in team if a.device.total_bytes >= least] for team in teams]
    return [team for team in large if len(team) >= request.n_devices]


def _beside(accounts: Sequence[DeviceAccount], kept: Kept) -> Sequence[DeviceAccount]:
    """With what this machine keeps for its GPUs, of which its own account knows nothing."""
    return [
        replace(a, kept_bytes=kept.size_bytes) if kept.size_bytes and _is_this_host(a) else a
        for a in accounts
    ]


def _is_this_host(a: DeviceAccount) -> bool:
    return a.device.address.on_host and a.device.address.node == LOCAL_NODE


def _with_places(
    request: Request, teams: Sequence[Sequence[DeviceAccount]], limits: Limits, n_on_host: int
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each node the devices that take one more trial, if enough. (Whoever wants one to itself
    does not wait for a place on it.) `n_on_host`: that this machine itself takes at most."""
    free = [
        [a for a in team if a.n_trials < _most(a, limits, n_on_host) or _wants_all(request, a)]
        for team in teams
    ]
    return [team for team in free if len(team) >= request.n_devices]


def _most(a: DeviceAccount, limits: Limits, n_on_host: int) -> int:
    """The most trials on a device."""
    most = limits.on(a.device.address)
    return min(most, n_on_host) if _is_this_host(a) else most


def _full(accounts: Sequence[DeviceAccount], limits: Limits, n_on_host: int) -> Refusal:
    """As many share the devices as may, or as are faster together."""
    held = [a for a in accounts if a.n_trials >= limits.on(a.device.address)]
    held = [a for a in held if a.device.address in limits.sharing]
    if not held:
        return all_taken(
            limits.max_per_gpu, limits.max_on_host, n_on_host, [a.device for a in accounts]
        )
    first = min(held, key=lambda a: a.n_trials)
    return full_by_pace(first, limits.sharing[first.device.address])


def _wants_all(request: Request, a: DeviceAccount) -> bool:
    return request.alone or (_is_unknown(request, a) and request.joins_at_bytes is None)


@dataclass(frozen=True)
class _Asked:
    """A request, and the processes that could serve it."""

    request: Request
    ledger: LedgerSnapshot
    process: ProcessId | None
    idle: Idle
    host: HostRoom
    _n_idle: dict[DeviceId, int] = field(default_factory=dict)
    """Idle processes by device."""

    def __post_init__(self) -> None:
        for devices, processes in self.idle.items():
            for device in devices:
                self._n_idle[device] = self._n_idle.get(device, 0) + len(processes)

    def decide(self, teams: Sequence[Sequence[DeviceAccount]]) -> Placement | Refusal:
        """The best of those that have room for it, or what is lacking."""
        if fitting := self.fitting(teams):
            return self.placement(min(fitting, key=lambda team: [self.order(a) for a in team]))
        if replace(self, host=HostRoom()).fitting(teams):
            return no_host_room(self.host, frozenset(self._n_idle))
        return no_room(self.request, [a for team in teams for a in team], self.in_the_way(teams))

    def fitting(self, teams: Sequence[Sequence[DeviceAccount]]) -> list[list[DeviceAccount]]:
        """The best devices of each node and kind that has enough with room."""
        fitting = []
        for team in teams:
            fit = [a for a in team if self._fits(a, self._context_bytes(a))]
            if len(fit) >= self.request.n_devices:
                fitting.append(heapq.nsmallest(self.request.n_devices, fit, key=self.order))
        return fitting or list(self._used_again_together(teams))

    def _used_again_together(
        self, teams: Sequence[Sequence[DeviceAccount]]
    ) -> Iterator[list[DeviceAccount]]:
        """Several devices that have no room for the contexts of one more process, but one idle
        process of ours on exactly these."""
        if self.request.n_devices == 1:
            return
        here = {a.device.address: a for team in teams for a in team}
        for devices, processes in self.idle.items():
            if len(devices) != self.request.n_devices or not here.keys() >= set(devices):
                continue
            chosen = [here[device] for device in devices]
            if len(processes) > max(a.page.n_coming for a in chosen) and all(
                self._fits(a, 0) and all(map(a.page.has_context, processes)) for a in chosen
            ):
                yield chosen

    def order(self, a: DeviceAccount) -> tuple[float, float, int, DeviceId]:
        """Of those that have room the first is taken. Nobody knows how much one of unknown size
        needs: it takes the most that there is."""
        if not _is_unknown(self.request, a):
            return a.order
        return a.n_trials > 0, -a.room_bytes, a.n_trials, a.device.address

    def in_the_way(self, teams: Sequence[Sequence[DeviceAccount]]) -> frozenset[DeviceId]:
        """Devices that would do if idle processes of ours ended there; where nothing runs at all,
        every one that has some: it cannot be known too well what they hold."""
        empty = not self.ledger.reservations
        if empty and any(map(_is_this_host, itertools.chain(*teams))):
            return frozenset(self._n_idle)  # those of GPUs have main memory, too
        for team in teams:
            free = [a for a in team if empty or self._fits_without_idle(a)]
            if empty or len(free) >= self.request.n_devices:
                found = frozenset(a.device.address for a in free if self._n_idle_on(a))
                if found:
                    return found
        return frozenset()

    def placement(self, chosen: Sequence[DeviceAccount]) -> Placement:
        shares = tuple(
            Share(a.device.address, a.device.name, self._reserved_bytes(a))
            for a in sorted(chosen, key=lambda a: a.device.address)  # a set has one kind of worker
        )
        if not _is_unknown(self.request, chosen[0]):
            return Placement(shares, exclusive=self.request.alone)
        joins = any(a.n_trials for a in chosen)
        return Placement(shares, exclusive=not joins, probing=joins)

    def _fits(self, a: DeviceAccount, context: int, given_back: int = 0) -> bool:
        request, room = self.request, a.room_bytes + given_back
        if a.device.fault is not None or not self._takes_process(a, context, given_back):
            return False
        if a.exclusive or (request.alone and a.n_trials > 0):
            return False
        if not given_back and not self._has_host_room(a):
            return False
        if request.undisturbed and not a.is_undisturbed:
            return False
        if request.alone and self._n_idle_on(a) > (context == 0) and not given_back:
            return False  # with a device to itself it has to have all of it
        if _is_unknown(request, a) and a.n_trials > 0:
            return self._may_join(a, room - context)
        if request.memory_bytes is None and not a.device.address.on_host:
            return room - context > 0
        return (request.memory_bytes or 0) + context <= room

    def _may_join(self, a: DeviceAccount, room_bytes: int) -> bool:
        """A trial of unknown size joins others where most trials would have room, one at a time;
        not where it shares a process with them, in which nothing holds it to a promise."""
        joins_at = self.request.joins_at_bytes
        if joins_at is None or self.process is not None:
            return False
        return joins_at <= room_bytes and not a.probing

    def _has_host_room(self, a: DeviceAccount) -> bool:
        """Beside a GPU of the machine whose memory and load were read."""
        address = a.device.address
        beside = address.node == LOCAL_NODE and not address.on_host
        return not beside or self.host.takes(self._used_again(a))

    def _takes_process(self, a: DeviceAccount, context: int, given_back: int) -> bool:
        """Whether its compute mode allows the process in which it would train."""
        most = a.device.max_processes
        if most is None or (context == 0 and most > 0):  # one that is there already
            return True
        return a.n_processes - (self._n_idle_on(a) if given_back else 0) < most

    def _fits_without_idle(self, a: DeviceAccount) -> bool:
        """Whether it would fit if all idle processes there had ended: into a new one."""
        guess = self._n_idle_on(a) * context_bytes(a.device.address)
        given_back = a.idle_bytes or min(guess, a.foreign_bytes)
        return given_back > 0 and self._fits(a, context_bytes(a.device.address), given_back)

    def _context_bytes(self, a: DeviceAccount) -> int:
        """What its process will take besides: nothing where that is there already."""
        here, page = a.device.address, a.page
        if self.process is not None and page.has_context(self.process):
            return 0
        idle = self._used_again(a)
        return 0 if idle and all(map(page.has_context, idle)) else context_bytes(here)

    def _used_again(self, a: DeviceAccount) -> Sequence[ProcessId]:
        """Idle processes of which it takes one; none: it takes a new one."""
        if not self.idle or self.request.n_devices > 1:
            return ()
        idle = self.idle.get((a.device.address,), ())
        return idle if len(idle) > a.page.n_coming else ()  # else those may take them

    def _n_idle_on(self, a: DeviceAccount) -> int:
        return self._n_idle.get(a.device.address, 0)

    def _reserved_bytes(self, a: DeviceAccount) -> int:
        if not (self.request.alone or _is_unknown(self.request, a)):
            return self.request.memory_bytes or 0
        if a.n_trials:
            return self.request.joins_at_bytes or 0
        return max(0, a.room_bytes - self._context_bytes(a))


def _is_unknown(request: Request, a: DeviceAccount) -> bool:
    """On the host a trial of unknown size counts by cores."""
    unknown = request.memory_bytes is None and not request.alone
    return unknown and not a.device.address.on_host


def _empty_room(a: DeviceAccount) -> int:
    return a.empty_room_bytes


def _nth_largest(n: int, team: Sequence[DeviceAccount]) -> DeviceAccount:
    return heapq.nlargest(n, team, key=_empty_room)[-1]
