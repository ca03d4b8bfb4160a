"""What `place_trial` has to decide, found by looking at one device after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from automl.admission.accounting.account import DeviceAccount, context_bytes, make_account
from automl.admission.accounting.device_table import SAME_SIZE_FRACTION, DeviceTable
from automl.admission.accounting.host_share import HostCapacities
from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import RefusalKind
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, ProcessId, ResourceRequest

Team = list[DeviceAccount]


@dataclass(frozen=True)
class PlainPlacing:
    """A request for devices of a reading that is fresh."""

    request: ResourceRequest
    reading: DeviceReading
    ledger: LedgerSnapshot
    limits: AdmissionLimits
    idle: Idle
    process: ProcessId | None

    @property
    def hosts(self) -> HostCapacities:
        share, in_threads = DeviceTable().host_share, self.process is not None
        return HostCapacities(
            self.reading, self.ledger, self.limits, share, idle=self.idle, in_threads=in_threads
        )

    def decide(self) -> tuple[DeviceId, ...] | RefusalKind:
        """The devices, or why there are none."""
        accounts = [
            make_account(d, self.reading, self.ledger.on(d.address), self.limits.headroom_bytes)
            for d in self.reading.devices
        ]
        left = [a for a in accounts if not a.device.lost]
        large = [a for team in self._largest(self._teams(left)) for a in team]
        if self._never(accounts):
            return RefusalKind.NEVER
        if self._never(left):
            return RefusalKind.LOST
        if any(a.device.fault is None for a in accounts) and self._never(
            [a for a in large if a.device.fault is None]
        ):
            return RefusalKind.DRAINED
        cap = self.limits.max_concurrent_trials
        if cap is not None and self.ledger.n_reservations >= cap:
            return RefusalKind.FULL
        free = self._teams([self.hosts.with_kept(a) for a in large if self._has_place(a)])
        if not free:
            is_closed = all(a.device.closed is not None for a in large)
            return RefusalKind.NO_ROOM if is_closed else RefusalKind.FULL
        n, best = self.request.n_devices, []
        for team in free:
            fitting = sorted(filter(self._fits_now, team), key=self._order)
            best += [fitting[:n]] if len(fitting) >= n else []
        best = best or self._reusable([a for team in free for a in team])
        if not best:
            return RefusalKind.NO_ROOM
        first = min(best, key=lambda team: [self._order(a) for a in team])
        return tuple(sorted(a.device.address for a in first))

    def in_the_way(self) -> frozenset[DeviceId]:
        """The devices that would do without the idle processes, while other trials run."""
        accounts = [
            make_account(d, self.reading, self.ledger.on(d.address), self.limits.headroom_bytes)
            for d in self.reading.devices
            if not d.lost
        ]
        large = [a for team in self._largest(self._teams(accounts)) for a in team]
        free = self._teams([self.hosts.with_kept(a) for a in large if self._has_place(a)])
        names = [(team[0].device.address.node, team[0].device.address.on_host) for team in free]
        for _, team in sorted(zip(names, free, strict=True), key=lambda pair: pair[0]):
            do = []
            for a in team:
                context = context_bytes(a.device.address)
                given_back = a.idle_bytes or min(self._n_idle(a) * context, a.foreign_bytes)
                do += [a] if given_back and self._fits(a, context, given_back) else []
            found = frozenset(a.device.address for a in do if self._n_idle(a))
            if found and len(do) >= self.request.n_devices:
                return found
        return frozenset()

    def _teams(self, accounts: Sequence[DeviceAccount]) -> list[Team]:
        teams: dict[object, Team] = defaultdict(list)
        for a in accounts:
            if a.device.address.kind in self.request.kinds:
                teams[a.device.address.node, a.device.address.kind].append(a)
        return [team for team in teams.values() if len(team) >= self.request.n_devices]

    def _nth_largest(self, team: Team, size: Callable[[DeviceAccount], int]) -> int:
        return sorted(map(size, team))[-self.request.n_devices]

    def _never(self, accounts: Sequence[DeviceAccount]) -> bool:
        rooms = [self._nth_largest(t, lambda a: a.empty_room_bytes) for t in self._teams(accounts)]
        return not rooms or (self.request.memory_bytes or 0) > max(rooms, default=0)

    def _largest(self, teams: list[Team]) -> list[Team]:
        if not self.request.alone or not teams:
            return teams
        most = max(self._nth_largest(team, lambda a: a.device.total_bytes) for team in teams)
        least = SAME_SIZE_FRACTION * most
        return self._teams([a for team in teams for a in team if a.device.total_bytes >= least])

    def _has_place(self, a: DeviceAccount) -> bool:
        most = self.hosts.most_trials(a.device.address)
        wants_all = self._is_unknown(a) and self.request.joins_at_bytes is None
        return a.n_trials < (most if not (self.request.alone or wants_all) else 99 * most)

    def _is_unknown(self, a: DeviceAccount) -> bool:
        unknown = self.request.memory_bytes is None and not self.request.alone
        return unknown and not a.device.address.on_host

    def _order(self, a: DeviceAccount) -> tuple[float, ...]:
        """Also of what is equal otherwise: by node, GPUs first."""
        address, load = a.device.address, round(4 * (a.device.utilisation or 0))
        room = a.room_bytes + a.kept_bytes
        by = (a.n_trials > 0, -room, 0) if self._is_unknown(a) else (a.n_trials, load, room)
        names = sorted(
            (d.address for d in self.reading.devices), key=lambda d: (d.node, d.on_host, d.uuid)
        )
        return (*by, names.index(address))

    def _fits_now(self, a: DeviceAccount) -> bool:
        has_host = a.device.address.on_host or self.hosts.room(a.device.address.node).takes(
            self._idle_to_reuse(a)
        )
        return has_host and self._fits(a, self._context(a))

    def _n_idle(self, a: DeviceAccount) -> int:
        here = a.device.address
        return sum(len(found) for devices, found in self.idle.items() if here in devices)

    def _fits(self, a: DeviceAccount, context: int, given_back: int = 0) -> bool:
        request, most, room = self.request, a.device.max_processes, a.room_bytes + given_back
        here, n_idle = a.device.address, self._n_idle(a)
        n_processes = a.n_processes - (n_idle if given_back else 0)
        takes = most is None or (most > 0 and (context == 0 or n_processes < most))
        if a.device.fault is not None or a.exclusive or not takes:
            return False
        if request.undisturbed and not a.is_undisturbed:
            return False
        if request.alone and (a.n_trials or (n_idle > (context == 0) and not given_back)):
            return False
        if self._is_unknown(a) and a.n_trials:
            joins_at = request.joins_at_bytes
            may_join = joins_at is not None and self.process is None and not a.probing
            return may_join and (joins_at or 0) + context <= room
        least = 0 if here.on_host else 1
        asked = least if request.memory_bytes is None else request.memory_bytes
        return asked + context <= room

    def _idle_to_reuse(self, a: DeviceAccount) -> Sequence[ProcessId]:
        here = () if self.request.n_devices > 1 else self.idle.get((a.device.address,), ())
        return here if len(here) > a.page.n_coming else ()

    def _context(self, a: DeviceAccount) -> int:
        idle = self._idle_to_reuse(a)
        is_there = self.process is not None and a.page.has_context(self.process)
        is_there = is_there or (bool(idle) and all(map(a.page.has_context, idle)))
        return 0 if is_there else context_bytes(a.device.address)

    def _reusable(self, free: Team) -> list[Team]:
        """Several devices that have an idle process together."""
        found = []
        for devices, processes in self.idle.items():
            team = [a for a in free if a.device.address in devices]
            if (
                len(team) == len(devices) == self.request.n_devices > 1
                and len(processes) > max(a.page.n_coming for a in team)
                and all(a.page.has_context(process) for a in team for process in processes)
                and all(self._fits(a, 0) for a in team)
                and all(self.hosts.room(a.device.address.node).takes(()) for a in team)
            ):
                found.append(team)
        return found
