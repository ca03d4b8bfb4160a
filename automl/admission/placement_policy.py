"""Decides whether a trial may start now, and on which devices. Pure: no lock, clock, NVML or torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit, here and over all
              and  the device is well  and  its host has main memory and cores for one more

on each of the devices that it asks for, all of one node, or on none. `account.py` has the formula
of room, `host_share.py` that of the host, `refusals.py` words the refusals. The columns of
`device_table.py` tell which devices come into question, and in which order.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from automl.admission.accounting.account import (
    CONTEXT_BOUND_BYTES,
    DeviceAccount,
    context_bytes,
)
from automl.admission.accounting.device_table import DeviceTable, Figures, Mask
from automl.admission.accounting.host_share import HostCapacities
from automl.admission.accounting.idle_processes import Idle, IdleProcesses
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import (
    AdmissionRefusal,
    RefusalKind,
    all_closed,
    all_cores_taken_refusal,
    all_gpus_taken_refusal,
    at_limit_refusal,
    full_by_pace_refusal,
    no_host_room_refusal,
    no_room_even_on_refusal,
    no_such_devices_refusal,
    only_on_drained_refusal,
    too_large_refusal,
    unfit_devices,
)
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, DeviceKind, DeviceShare, Placement, ProcessId, ResourceRequest


def place_trial(
    request: ResourceRequest,
    reading: DeviceReading | None,
    ledger: LedgerSnapshot,
    limits: AdmissionLimits,
    *,
    now_seconds: float,
    process: ProcessId | None = None,
    idle: Idle | None = None,
    table: DeviceTable | None = None,
    devices_are_partial: bool = False,
) -> Placement | AdmissionRefusal:
    """Return the devices on which the trial starts, or why it does not start.

    Trials spread over devices first (fewest trials, then least busy): idle GPUs are the greater
    waste, and first come, first served already keeps large requests from starving. Among equal
    devices the one with the least room left is taken, so that large requests find a whole device.

    Parameters
    ----------
    process: the process that would train the trial, where it is known (threads of this process).
    idle: processes that could be reused, or ended for their memory.
    table: the table of earlier calls, so that only what changed is computed.
    devices_are_partial: the reading covers only some of the devices. The caller decides whether
        the request can ever fit.
    now_seconds: `time.monotonic()`.
    """
    if (unreadable := unfit_devices(reading, limits.stale_seconds, now_seconds)) is not None:
        return unreadable
    assert reading is not None
    table, idle, in_threads = table or DeviceTable(), idle or {}, process is not None
    table.update(reading, ledger, limits.headroom_bytes)
    hosts = HostCapacities(
        reading, ledger, limits, table.host_share, idle=idle, in_threads=in_threads
    )
    idle_ones = IdleProcesses(idle, request.n_devices)
    search = _PlacementSearch(request, ledger, limits, table, hosts, process, idle_ones)
    return search.place(sizes_count=not devices_are_partial)


@dataclass(frozen=True)
class _PlacementSearch:
    """A request, with all that one decision about it depends on."""

    request: ResourceRequest
    ledger: LedgerSnapshot
    limits: AdmissionLimits
    table: DeviceTable
    hosts: HostCapacities
    process: ProcessId | None
    idle: IdleProcesses

    def place(self, *, sizes_count: bool) -> Placement | AdmissionRefusal:
        """Return the placement or the refusal.

        `sizes_count`: whether the request never fits if all devices of the table are too small.
        """
        if (closed := self._closed_refusal(sizes_count=sizes_count)) is not None:
            return closed
        cap = self.limits.max_concurrent_trials
        if cap is not None and self.ledger.n_reservations >= cap:
            return at_limit_refusal(cap)
        usable = self._keep_teams(self._asked & self.table.is_left)
        if self.request.alone:
            usable = self.table.keep_largest(usable, self.request.n_devices)
        free = self._keep_teams(usable & self._have_places)
        if not free.any():
            return self._full_refusal(usable)
        candidates = self._candidates(free)
        if (best := next(self._teams(free, candidates, self._fits_with_host), None)) is not None:
            return self._placement(best)
        if lacking := [*self._teams(free, candidates, self._fits)]:
            return self._no_host_room(lacking)
        return self._no_room(free)

    # --- which devices come into question ---

    def _closed_refusal(self, *, sizes_count: bool) -> AdmissionRefusal | None:
        """Return why the request could not start even if nothing else ran; None: it could.

        Either no device could hold it, or no device that is well.
        """
        table = self.table
        if (never := self._never(self._asked, sizes_count=sizes_count)) is not None:
            return never
        if table.is_well.all():
            return None
        left, kind = self._asked & table.is_left, None
        if self._never(left) is not None:
            kind = RefusalKind.LOST
        elif table.is_well.any():
            if self.request.alone:
                left = table.keep_largest(self._keep_teams(left), self.request.n_devices)
            kind = None if self._never(left & table.is_well) is None else RefusalKind.DRAINED
        if kind is None:
            return None
        faulty = [table.account(row).device for row in (~table.is_well).nonzero()[0]]
        return only_on_drained_refusal(self.request, faulty, kind)

    def _never(self, mask: Mask, *, sizes_count: bool = True) -> AdmissionRefusal | None:
        """Return why the request would not fit even if nothing else were there; None: it would.

        Where sizes do not count, the request may fit on a device that is too small for it and a new
        context, with a context that is there already.
        """
        request, table = self.request, self.table
        teams = self._keep_teams(mask)
        if not teams.any():
            n_most = int(np.bincount(table.team, mask).max())
            return no_such_devices_refusal(request, n_most)
        if request.memory_bytes is None or not sizes_count:
            return None
        room_bytes = table.empty_room_bytes
        if self._keep_teams(teams & (room_bytes >= request.memory_bytes)).any():
            return None
        largest = table.nth_largest(room_bytes, teams, request.n_devices)
        return too_large_refusal(request, table.account(largest))

    def _keep_teams(self, mask: Mask) -> Mask:
        return self.table.keep_teams(mask, self.request.n_devices)

    @cached_property
    def _asked(self) -> Mask:
        """Rows of the kinds that the request allows."""
        return reduce(operator.or_, map(self.table.of_kind.__getitem__, self.request.kinds))

    @cached_property
    def _hosts_of_gpus(self) -> Set[int]:
        """Rows of machines that keep something for their GPUs, where the request may go there."""
        return self.table.hosts_of_gpus if DeviceKind.CPU in self.request.kinds else set()

    @cached_property
    def _have_places(self) -> Mask:
        """Rows of devices that take one more trial.

        A request for a device to itself waits for no place on it, if the device has any places.
        """
        most = self.table.max_trials(self.limits)
        if self._hosts_of_gpus:
            most = most.copy()
            for row in self._hosts_of_gpus:
                most[row] = self.hosts.most_trials(self.table.addresses[row])
        have_places = self.table.n_trials < most
        if self.request.alone:
            return most > 0
        if self.request.memory_bytes is None and self.request.joins_at_bytes is None:
            return have_places | (self.table.on_gpu & (most > 0))
        return have_places

    # --- where the request fits ---

    @cached_property
    def _room_bytes(self) -> Figures:
        """Room of each row, less what its machine keeps for GPUs."""
        room = self.table.room_bytes
        if self._hosts_of_gpus:
            room = room.copy()
            for row in self._hosts_of_gpus:
                room[row] = self._account(row).room_bytes
        return room

    @cached_property
    def _spare_bytes(self) -> Figures:
        """Room of each row beyond what the request needs in a process that is there already."""
        request, table = self.request, self.table
        if request.memory_bytes is not None:
            return self._room_bytes - request.memory_bytes
        if request.alone or request.joins_at_bytes is None:
            return self._room_bytes - table.on_gpu
        needed: Figures = np.where(table.n_trials > 0, request.joins_at_bytes, 1) * table.on_gpu
        return self._room_bytes - needed

    @property
    def _could_take(self) -> Mask:
        """Rows on which the request may fit if memory were no matter."""
        takes_trials = self.table.takes_trials
        return takes_trials & (self.table.n_trials == 0) if self.request.alone else takes_trials

    def _candidates(self, free: Mask) -> Mask:
        """Return the rows on which the request may fit by what the columns tell; `_fits` decides.

        Without room for the context of a new process, a process has to be there already.
        """
        table = self.table
        found = free & self._could_take & (self._spare_bytes >= 0)
        if self.process is not None:
            return found
        may_have_process = table.of_kind[DeviceKind.CPU].copy()
        may_have_process[[table.rows[d] for d in self.idle.on_one() if d in table.rows]] = True
        return found & (may_have_process | (self._spare_bytes >= CONTEXT_BOUND_BYTES))

    def _teams(
        self, free: Mask, candidates: Mask, fits: Callable[[DeviceAccount, int | None], bool]
    ) -> Iterator[Sequence[DeviceAccount]]:
        """Yield the best devices of each team that has enough devices on which the request fits.

        The best team comes first: the one whose first device would be taken first. Where no team
        has room for the contexts of one more process, an idle process may have all the devices.
        """
        n_devices, seen, n_yielded = self.request.n_devices, set(), 0
        for row in self._in_order(self._keep_teams(candidates)):
            team = self.table.team[row]
            if team in seen or not fits(first := self._account(row), None):
                continue
            found = [first]
            if n_devices > 1:
                same = self._in_order(candidates & (self.table.team == team))
                fitting = (a for a in map(self._account, same) if fits(a, None))
                found = [*itertools.islice(fitting, n_devices)]
            seen.add(team)
            if len(found) == n_devices:
                n_yielded += 1
                yield found
        if not n_yielded:
            yield from self._teams_to_reuse(free, fits)

    def _teams_to_reuse(
        self, free: Mask, fits: Callable[[DeviceAccount, int | None], bool]
    ) -> Sequence[Sequence[DeviceAccount]]:
        """Return several devices with one of our idle processes on exactly these devices, the best
        ones first."""
        found, rows = [], self.table.rows
        for devices, processes in self.idle.on_several().items():
            chosen = [rows[d] for d in devices if d in rows and free[rows[d]]]
            accounts = [*map(self._account, chosen)]
            if (
                len(chosen) == len(devices)
                and len(processes) > max(a.page.n_coming for a in accounts)
                and all(fits(a, 0) and all(map(a.page.has_context, processes)) for a in accounts)
            ):
                found.append((self._ranks(np.array(chosen)).tolist(), chosen, accounts))
        return [accounts for _, _, accounts in sorted(found, key=operator.itemgetter(0, 1))]

    def _in_order(self, mask: Mask) -> Iterator[int]:
        """Yield the rows in the order in which they are taken."""
        rows = mask.nonzero()[0]
        if len(rows):
            ranks = self._ranks(rows)
            yield int(rows[ranks.argmin()])  # mostly enough, and sorting thousands takes longer
            yield from rows[ranks.argsort(kind="stable")][1:].tolist()

    def _ranks(self, rows: Figures) -> Figures:
        """Return the ranks of these rows for this request.

        A trial of unknown size may need any amount, so it takes the GPU with the most room.
        """
        ranks = self.table.rank[rows]
        if self.request.memory_bytes is not None or self.request.alone:
            return ranks
        is_shared = np.minimum(self.table.n_trials[rows], 1)
        by_room = (is_shared << 52) - self.table.room_bytes[rows]
        return np.where(self.table.on_gpu[rows], by_room, ranks)

    def _account(self, row: int) -> DeviceAccount:
        a = self.table.account(row)
        return self.hosts.with_kept(a) if row in self._hosts_of_gpus else a

    def _fits_with_host(self, a: DeviceAccount, context: int | None = None) -> bool:
        """Return whether the request fits, and its process on the machine of a GPU; the account of
        a host already covers its process."""
        address = a.device.address
        if not address.on_host and not self.hosts.room(address.node).takes(self.idle.to_reuse(a)):
            return False
        return self._fits(a, context)

    def _fits(self, a: DeviceAccount, context: int | None = None, given_back: int = 0) -> bool:
        """Return whether the request fits with this context (None: with the one of its process),
        if so much were given back."""
        request, room = self.request, a.room_bytes + given_back
        context = self._context_bytes(a) if context is None else context
        if a.device.fault is not None or not self._takes_process(a, context, given_back):
            return False
        if a.exclusive or (request.alone and a.n_trials > 0):
            return False
        if request.undisturbed and not a.is_undisturbed:
            return False
        if request.alone and self.idle.n_on(a.device.address) > (context == 0) and not given_back:
            return False  # a trial with a device to itself needs all of it
        if self._is_size_unknown(a) and a.n_trials > 0:
            return self._may_join(a, room - context)
        if request.memory_bytes is None and not a.device.address.on_host:
            return room - context > 0
        return (request.memory_bytes or 0) + context <= room

    def _may_join(self, a: DeviceAccount, room_bytes: int) -> bool:
        """Return whether a trial of unknown size may join others here.

        It may where most trials would have room, and one at a time; not in a process that it shares
        with others, where nothing holds it to a promise.
        """
        joins_at = self.request.joins_at_bytes
        if joins_at is None or self.process is not None:
            return False
        return joins_at <= room_bytes and not a.probing

    def _takes_process(self, a: DeviceAccount, context: int, given_back: int) -> bool:
        """Return whether the compute mode of the device allows the process that would train the
        trial."""
        most = a.device.max_processes
        if most is None or most == 0:
            return most is None
        n_processes = a.n_processes - (self.idle.n_on(a.device.address) if given_back else 0)
        return context == 0 or n_processes < most  # without a context the process is there already

    def _context_bytes(self, a: DeviceAccount) -> int:
        """Return what the context of the trial's process will take: nothing where it is there
        already."""
        here, page = a.device.address, a.page
        if self.process is not None and page.has_context(self.process):
            return 0
        idle = self.idle.to_reuse(a)
        return 0 if idle and all(map(page.has_context, idle)) else context_bytes(here)

    def _reserved_bytes(self, a: DeviceAccount) -> int:
        if not (self.request.alone or self._is_size_unknown(a)):
            return self.request.memory_bytes or 0
        if a.n_trials:
            return self.request.joins_at_bytes or 0
        return max(0, a.room_bytes - self._context_bytes(a))

    def _is_size_unknown(self, a: DeviceAccount) -> bool:
        """Return whether the request's size is unknown there; on the host such a trial counts by
        cores."""
        unknown = self.request.memory_bytes is None and not self.request.alone
        return unknown and not a.device.address.on_host

    def _placement(self, chosen: Sequence[DeviceAccount]) -> Placement:
        # Sorted, so that each set of devices has one kind of worker whatever the order.
        shares = tuple(
            DeviceShare(a.device.address, a.device.name, self._reserved_bytes(a))
            for a in sorted(chosen, key=lambda a: a.device.address)
        )
        if not self._is_size_unknown(chosen[0]):
            return Placement(shares, exclusive=self.request.alone)
        joins = any(a.n_trials for a in chosen)
        return Placement(shares, exclusive=not joins, probing=joins)

    # --- why it does not start ---

    def _full_refusal(self, usable: Mask) -> AdmissionRefusal:
        """Return the refusal for devices that are shared by as many trials as may be, or as are
        faster together."""
        rows, limits = usable.nonzero()[0], self.limits
        if all(self.table.account(row).device.closed is not None for row in rows):
            return all_closed([self.table.account(row).device for row in rows])
        n_trials, most = self.table.n_trials, self.table.max_trials(limits)
        full = (usable & (most > 0) & (n_trials >= most)).nonzero()[0]
        for row in full[n_trials[full].argsort(kind="stable")] if limits.sharing else ():
            a = self.table.account(row)
            if (limit := limits.sharing.get(a.device.address)) is not None:
                return full_by_pace_refusal(a, limit)
        if self.table.on_gpu[rows].any():
            return all_gpus_taken_refusal(limits.max_per_gpu)
        hosts = (self.table.addresses[row] for row in self._hosts_of_gpus if usable[row])
        kept = map(self.hosts.n_kept, hosts)
        return all_cores_taken_refusal(limits.n_cores, limits.n_cores - sum(kept))

    def _no_host_room(self, lacking: Sequence[Sequence[DeviceAccount]]) -> AdmissionRefusal:
        """Return the refusal for teams of GPUs whose machines lack room, the best team first.

        It names a machine on which idle processes could be ended, if there is one.
        """
        nodes = [team[0].device.address.node for team in lacking]
        node = next((node for node in nodes if node in self.idle.nodes), nodes[0])
        return no_host_room_refusal(node, self.hosts.room(node), self.idle.on_nodes({node}))

    def _no_room(self, free: Mask) -> AdmissionRefusal:
        in_the_way = self._in_the_way(free)
        rows = (free & self.table.is_open).nonzero()[0]
        if not len(rows):
            closed = [self.table.account(row).device for row in free.nonzero()[0]]
            return all_closed(closed, in_the_way)
        roomiest = self._account(rows[self._room_bytes[rows].argmax()])
        return no_room_even_on_refusal(roomiest, self.request, in_the_way)

    def _in_the_way(self, free: Mask) -> frozenset[DeviceId]:
        """Return the devices that would do if our idle processes ended there.

        Where nothing runs at all, these are all devices with idle processes, as what they hold may
        not be known well.
        """
        table, nothing_runs = self.table, not self.ledger.n_reservations
        if nothing_runs:
            hosts = (free & ~table.on_gpu).nonzero()[0]
            if found := self.idle.on_nodes({table.addresses[row].node for row in hosts}):
                return found  # processes on GPUs hold main memory, too
        else:
            free = free & self._could_take & (self._spare_bytes + table.given_back_bytes >= 0)
        rows = free.nonzero()[0].tolist()
        for _, team in itertools.groupby(rows, key=table.team.__getitem__):
            do = [a for a in map(self._account, team) if nothing_runs or self._fits_without_idle(a)]
            found = frozenset(a.device.address for a in do if self.idle.n_on(a.device.address))
            if found and (nothing_runs or len(do) >= self.request.n_devices):
                return found
        return frozenset()

    def _fits_without_idle(self, a: DeviceAccount) -> bool:
        """Return whether the request would fit into a new process if all idle processes there had
        ended."""
        guess = self.idle.n_on(a.device.address) * context_bytes(a.device.address)
        given_back = a.idle_bytes or min(guess, a.foreign_bytes)
        return given_back > 0 and self._fits(a, context_bytes(a.device.address), given_back)
