"""Whether a trial may start now, and on which devices. Pure: no lock, no clock, no NVML, no torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit, here and over all

on each of the devices it asks for, all of them on one node, or nothing. `account.py` has the
formula of room, `reasons.py` the words of a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from automl.admission.account import DeviceAccount, account, context_bytes
from automl.admission.host_share import no_host_room
from automl.admission.ledger import LedgerSnapshot
from automl.admission.reasons import (
    Refusal,
    all_taken,
    at_limit,
    no_room,
    no_such_devices,
    only_on_lost,
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

    def on(self, device: DeviceId) -> int:
        """The most trials on a device."""
        return self.max_on_host if device.on_host else self.max_per_gpu

    def at_once(self, devices: Iterable[DeviceId]) -> int:
        """The most trials over these devices; at least 1."""
        most = sum(map(self.on, devices))
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
) -> Placement | Refusal:
    """Choose devices, or say why there are none.

    Trials spread over devices first (fewest trials, then least busy): idle GPUs are the greater
    waste, and first come, first served already keeps large requests from starving. Among equals
    the device left with the least room is taken, so that large requests find one whole.

    Parameters
    ----------
    process: that which would train it, where it is known before (threads of this process).
    idle: those that could be used again, or ended for their memory.
    now_seconds: `time.monotonic()`.
    """
    if (unseen := unfit(reading, limits.stale_seconds, now_seconds)) is not None:
        return unseen
    assert reading is not None
    accounts = [account(d, reading, ledger, limits.headroom_bytes) for d in reading.devices]
    if (never := _never(request, accounts)) is not None:
        return never
    accounts = [a for a in accounts if not a.device.lost]
    if _never(request, accounts) is not None:
        return only_on_lost(request, reading.devices)
    teams = _teams(request, accounts)
    cap = limits.max_concurrent_trials
    if cap is not None and len(ledger.reservations) >= cap:
        return at_limit(cap)
    if request.alone:
        teams = _largest(request, teams)
    teams = _with_places(request, teams, limits)
    if not teams:
        return all_taken(limits.max_per_gpu, limits.max_on_host, [a.device for a in accounts])
    asked = _Asked(request, ledger, process, idle or {})
    if process is None and (full := asked.no_host_room(reading, limits)) is not None:
        teams = [team for team in teams if not _beside_host(team)]
        if not teams:
            return full
    fitting = asked.fitting(teams)
    if not fitting:
        return no_room(request, [a for team in teams for a in team], asked.in_the_way(teams))
    return asked.placement(min(fitting, key=lambda chosen: [_order(a) for a in chosen]))


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


def _never(request: Request, accounts: Sequence[DeviceAccount]) -> Refusal | None:
    """Not even if nothing else were there."""
    teams = _teams(request, accounts)
    if not teams:
        return no_such_devices(request, _most_devices(request, accounts))
    tightest = max((_by_size(team)[request.n_devices - 1] for team in teams), key=_empty_room)
    if request.memory_bytes is None or request.memory_bytes <= tightest.empty_room_bytes:
        return None
    return too_large(request, tightest)


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
    sizes = [_by_size(team)[request.n_devices - 1].device.total_bytes for team in teams]
    least = _SAME_SIZE * max(sizes)
    large = [[a for a in team if a.device.total_bytes >= least] for team in teams]
    return [team for team in large if len(team) >= request.n_devices]


def _with_places(
    request: Request, teams: Sequence[Sequence[DeviceAccount]], limits: Limits
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each node the devices that take one more trial, if enough."""
    free = [[a for a in team if a.n_trials < limits.on(a.device.address)] for team in teams]
    return [team for team in free if len(team) >= request.n_devices]


@dataclass(frozen=True)
class _Asked:
    """A request, and the processes that could serve it."""

    request: Request
    ledger: LedgerSnapshot
    process: ProcessId | None
    idle: Idle
    _n_idle: dict[DeviceId, int] = field(default_factory=dict)
    """Idle processes by device."""

    def __post_init__(self) -> None:
        for devices, processes in self.idle.items():
            for device in devices:
                self._n_idle[device] = self._n_idle.get(device, 0) + len(processes)

    def fitting(self, teams: Sequence[Sequence[DeviceAccount]]) -> list[list[DeviceAccount]]:
        """The best devices of each node and kind that has enough with room."""
        fitting = []
        for team in teams:
            fit = sorted((a for a in team if self._fits(a, self._context_bytes(a))), key=_order)
            if len(fit) >= self.request.n_devices:
                fitting.append(fit[: self.request.n_devices])
        return fitting

    def in_the_way(self, teams: Sequence[Sequence[DeviceAccount]]) -> frozenset[DeviceId]:
        """Devices that would do if idle processes of ours ended there; where nothing runs at all,
        every one that has some: it cannot be known too well what they hold."""
        empty = not self.ledger.reservations
        for team in teams:
            free = [a for a in team if empty or self._fits_without_idle(a)]
            if empty or len(free) >= self.request.n_devices:
                found = frozenset(a.device.address for a in free if self._n_idle_on(a))
                if found:
                    return found
        return frozenset()

    def no_host_room(self, reading: Reading, limits: Limits) -> Refusal | None:
        """Why it starts on no GPU of this machine, whatever room that has."""
        idle = frozenset(self._n_idle)
        return no_host_room(reading, self.ledger, limits.headroom_bytes, limits.max_on_host, idle)

    def placement(self, chosen: Sequence[DeviceAccount]) -> Placement:
        shares = tuple(
            Share(a.device.address, a.device.name, self._reserved_bytes(a)) for a in chosen
        )
        return Placement(shares, exclusive=_wants_all(self.request, chosen[0]))

    def _fits(self, a: DeviceAccount, context: int, given_back: int = 0) -> bool:
        request, room = self.request, a.room_bytes + given_back
        if a.device.fault is not None or not self._takes_process(a, context, given_back):
            return False
        if a.exclusive or (_wants_all(request, a) and a.n_trials > 0):
            return False
        if request.undisturbed and not a.is_undisturbed:
            return False
        if request.alone and self._n_idle_on(a) > (context == 0) and not given_back:
            return False  # with a device to itself it has to have all of it
        if request.memory_bytes is None and not a.device.address.on_host:
            return room - context > 0
        return (request.memory_bytes or 0) + context <= room

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
        here = a.device.address
        if self.process is not None and self.ledger.has_context(here, self.process):
            return 0
        idle = self.idle.get((here,), ()) if self.request.n_devices == 1 else ()
        n_coming = sum(r.process is None for r in self.ledger.on(here))  # they may take them
        has_one = len(idle) > n_coming and all(self.ledger.has_context(here, p) for p in idle)
        return 0 if has_one else context_bytes(here)

    def _n_idle_on(self, a: DeviceAccount) -> int:
        return self._n_idle.get(a.device.address, 0)

    def _reserved_bytes(self, a: DeviceAccount) -> int:
        if not _wants_all(self.request, a):
            return self.request.memory_bytes or 0
        return max(0, a.room_bytes - self._context_bytes(a))


def _beside_host(team: Sequence[DeviceAccount]) -> bool:
    """Whether these are GPUs of the machine whose memory and load were read."""
    address = team[0].device.address
    return address.node == LOCAL_NODE and not address.on_host


def _wants_all(request: Request, a: DeviceAccount) -> bool:
    """On the host a trial of unknown size counts by cores."""
    return request.alone or (request.memory_bytes is None and not a.device.address.on_host)


def _order(a: DeviceAccount) -> tuple[int, float, int, str, str]:
    """The first is taken."""
    return a.n_trials, _load(a), a.room_bytes, a.device.address.node, a.device.address.uuid


def _load(a: DeviceAccount) -> float:
    """Utilisation in quarters: it says that some kernel ran, not how much room there is."""
    return round((a.device.utilisation or 0.0) * 4) / 4


def _empty_room(a: DeviceAccount) -> int:
    return a.empty_room_bytes


def _by_size(team: Sequence[DeviceAccount]) -> Sequence[DeviceAccount]:
    return sorted(team, key=_empty_room, reverse=True)
