"""Decides whether a trial may start now, and on which devices. Pure: no lock, clock, NVML or torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit, here and over all
              and  the device is well  and  its host has main memory and cores for one more

on each of the devices that it asks for, all of one node, or on none. `account.py` has the formula
of room, `host_share.py` that of the host, `device_teams.py` selects the devices that come into
question, `refusals.py` words the refusals. `device_index.py` finds one device among thousands
without looking at all of them.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from automl.admission.accounting.account import DeviceAccount, context_bytes
from automl.admission.accounting.device_accounts import DeviceAccounts
from automl.admission.accounting.device_index import DeviceIndex
from automl.admission.accounting.device_teams import (
    all_full_refusal,
    closed_devices_refusal,
    device_teams,
    drop_lost_devices,
    has_free_place,
    is_size_unknown,
    keep_devices_with_places,
    keep_largest_devices,
)
from automl.admission.accounting.host_share import HostRoom, HostRooms
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import (
    AdmissionRefusal,
    all_gpus_taken_refusal,
    at_limit_refusal,
    full_by_pace_refusal,
    no_host_room_refusal,
    no_room_even_on_refusal,
    no_room_refusal,
    too_large_refusal,
    unfit_devices,
)
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, DeviceKind, DeviceShare, Placement, ProcessId, ResourceRequest

Idle: TypeAlias = Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]
"""Processes of ours in which nothing runs, by their devices."""


def place_trial(
    request: ResourceRequest,
    reading: DeviceReading | None,
    ledger: LedgerSnapshot,
    limits: AdmissionLimits,
    *,
    now_seconds: float,
    process: ProcessId | None = None,
    idle: Idle | None = None,
    accounts: DeviceAccounts | None = None,
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
    accounts: accounts of earlier calls, so that only what changed is added up.
    devices_are_partial: the reading covers only some of the devices. The caller decides whether
        the request can ever fit.
    now_seconds: `time.monotonic()`.
    """
    if (unreadable := unfit_devices(reading, limits.stale_seconds, now_seconds)) is not None:
        return unreadable
    assert reading is not None
    kept_accounts = accounts or DeviceAccounts()
    idle, in_threads = idle or {}, process is not None
    hosts = HostRooms(
        reading, ledger, limits, kept_accounts.host_share, idle=idle, in_threads=in_threads
    )
    search = _PlacementSearch(request, ledger, process, idle, hosts, hosts.room)
    if accounts is not None and request.n_devices == 1 and not devices_are_partial:
        found = search.place_by_index(accounts.index(reading, ledger, limits), limits)
        if found is not None:
            return found
    everything = [*kept_accounts.update(reading, ledger, limits.headroom_bytes).values()]
    if (closed := closed_devices_refusal(request, everything, devices_are_partial)) is not None:
        return closed
    cap = limits.max_concurrent_trials
    if cap is not None and ledger.n_reservations >= cap:
        return at_limit_refusal(cap)
    teams = drop_lost_devices(request, device_teams(request, everything))
    if request.alone:
        teams = keep_largest_devices(request, teams)
    free = keep_devices_with_places(request, teams, hosts)
    if not free:
        return all_full_refusal([a for team in teams for a in team], limits, hosts)
    return search.place_on_teams(free)


@dataclass(frozen=True)
class _PlacementSearch:
    """A request, with the ledger and the processes that could serve it."""

    request: ResourceRequest
    ledger: LedgerSnapshot
    process: ProcessId | None
    idle: Idle
    hosts: HostRooms
    host_room: Callable[[str], HostRoom]
    """Returns the room of the machine of a GPU, by its node."""

    @cached_property
    def _with_idle(self) -> frozenset[DeviceId]:
        """Devices on which there are idle processes."""
        return frozenset(itertools.chain(*(d for d, processes in self.idle.items() if processes)))

    @cached_property
    def _n_idle_of_several(self) -> Mapping[DeviceId, int]:
        """Number of idle processes that have several devices, by device."""
        n_idle: dict[DeviceId, int] = {}
        if sum(map(len, self.idle)) > len(self.idle):  # skips thousands with one device each
            for devices, processes in self.idle.items():
                for device in devices if len(devices) > 1 else ():
                    n_idle[device] = n_idle.get(device, 0) + len(processes)
        return n_idle

    def place_by_index(
        self, index: DeviceIndex, limits: AdmissionLimits
    ) -> Placement | AdmissionRefusal | None:
        """Return what `place_trial` decides, by looking at a few accounts of the index; None: all
        accounts have to be looked at."""
        request, cap = self.request, limits.max_concurrent_trials
        if (largest := index.too_small(request)) is not None:
            return too_large_refusal(request, largest)
        if not index.is_open_to(request):
            return None
        if cap is not None and self.ledger.n_reservations >= cap:
            return at_limit_refusal(cap)
        if not index.has_places(request):
            held = index.full_by_pace(request)
            if held is not None:
                return full_by_pace_refusal(held, limits.sharing[held.device.address])
            return all_gpus_taken_refusal(limits.max_per_gpu) if index.has_gpus(request) else None
        lacking: dict[str, DeviceAccount] = {}

        def fits(a: DeviceAccount) -> bool:
            return self._fits_indexed(a, lacking)

        if fitting := index.fitting(request, fits, self._may_be_on):
            return self.placement([self.hosts.with_kept(min(fitting, key=self.order))])
        if index.has_hosts_of_gpus and DeviceKind.CPU in request.kinds:
            return None
        if lacking:
            return self._no_host_room([*lacking.values()])
        roomiest = index.open_by_room(request)
        if roomiest is None or not self.ledger.n_reservations:
            return None
        return no_room_even_on_refusal(roomiest, request, self._idle_in_the_way(index))

    def _idle_in_the_way(self, index: DeviceIndex) -> frozenset[DeviceId]:
        """Return the same devices as `in_the_way` by the index, while something runs."""
        # A trial of unknown size takes what an empty GPU has; on a host only cores count.
        least_bytes = self.request.memory_bytes or 0
        team, found = None, []
        for a in index.with_idle(self.request, least_bytes):
            address = a.device.address
            if team is not None and (address.node, address.kind) != team:
                break
            if self._n_idle_on(a) and self._fits_without_idle(a):
                team = address.node, address.kind
                found.append(address)
        return frozenset(found)

    @property
    def _ignoring_hosts(self) -> _PlacementSearch:
        """The same search on machines that have room for any process."""
        return replace(self, host_room=lambda node: HostRoom())

    def _fits_now(self, a: DeviceAccount) -> bool:
        return self._fits(a, self._context_bytes(a)) and self._has_host_room(a)

    def _fits_indexed(self, a: DeviceAccount, lacking: dict[str, DeviceAccount]) -> bool:
        """Return whether the request fits on a device of the index, which may be full.

        The first device of each node that lacks only room of its machine is added to `lacking`;
        devices come in the order of `order`.
        """
        address = a.device.address
        if address.on_host:
            return has_free_place(self.request, a, self.hosts) and self._fits_now(
                self.hosts.with_kept(a)
            )
        if address.node in lacking and not self._idle_to_reuse(a):
            return False  # its machine has no room for this trial's process either
        if not self._fits(a, self._context_bytes(a)):
            return False
        if self._has_host_room(a):
            return True
        lacking.setdefault(address.node, a)
        return False

    def _no_host_room(self, lacking: Sequence[DeviceAccount]) -> AdmissionRefusal:
        """Return the refusal for GPUs whose machines lack room.

        `lacking` has the GPU of each machine that would be taken first. The refusal names a machine
        on which idle processes could be ended, if there is one.
        """
        with_idle = {device.node for device in self._with_idle}
        first = min(lacking, key=lambda a: (a.device.address.node not in with_idle, self.order(a)))
        node = first.device.address.node
        return no_host_room_refusal(node, self.host_room(node), self._idle_on_nodes({node}))

    def _idle_on_nodes(self, nodes: Set[str]) -> frozenset[DeviceId]:
        return frozenset(device for device in self._with_idle if device.node in nodes)

    def _may_be_on(self, device: DeviceId) -> bool:
        """Return whether a process that would train the trial may be on the device already."""
        return self.process is not None or (device,) in self.idle

    def place_on_teams(
        self, teams: Sequence[Sequence[DeviceAccount]]
    ) -> Placement | AdmissionRefusal:
        """Return the best placement among these devices, or what is lacking."""
        if fitting := self.fitting(teams):
            return self.placement(min(fitting, key=lambda team: [self.order(a) for a in team]))
        if lacking := self._ignoring_hosts.fitting(teams):
            return self._no_host_room([team[0] for team in lacking])
        return no_room_refusal(
            self.request, [a for team in teams for a in team], self.in_the_way(teams)
        )

    def fitting(self, teams: Sequence[Sequence[DeviceAccount]]) -> list[list[DeviceAccount]]:
        """Return the best devices of each node and kind that has enough devices with room."""
        fitting = []
        for team in teams:
            fit = [a for a in team if self._fits_now(a)]
            if len(fit) >= self.request.n_devices:
                fitting.append(heapq.nsmallest(self.request.n_devices, fit, key=self.order))
        return fitting or list(self._teams_to_reuse(teams))

    def _teams_to_reuse(
        self, teams: Sequence[Sequence[DeviceAccount]]
    ) -> Iterator[list[DeviceAccount]]:
        """Yield several devices without room for the contexts of one more process, but with one
        idle process of ours on exactly these devices."""
        if self.request.n_devices == 1:
            return
        here = {a.device.address: a for team in teams for a in team}
        for devices, processes in self.idle.items():
            if len(devices) != self.request.n_devices or not here.keys() >= set(devices):
                continue
            chosen = [here[device] for device in devices]
            if len(processes) > max(a.page.n_coming for a in chosen) and all(
                self._fits(a, 0)
                and self._has_host_room(a)
                and all(map(a.page.has_context, processes))
                for a in chosen
            ):
                yield chosen

    def order(self, a: DeviceAccount) -> tuple[float, float, int, DeviceId]:
        """Return the sort key of a device: of those that have room the first is taken.

        A trial of unknown size may need any amount, so it takes the device with the most room.
        """
        if not is_size_unknown(self.request, a):
            return a.order
        return a.n_trials > 0, -a.room_bytes, a.n_trials, a.device.address

    def in_the_way(self, teams: Sequence[Sequence[DeviceAccount]]) -> frozenset[DeviceId]:
        """Return the devices that would do if idle processes of ours ended there.

        Where nothing runs at all, these are all devices with idle processes, as what they hold may
        not be known well.
        """
        empty = not self.ledger.n_reservations
        here = (a.device.address for a in itertools.chain(*teams))
        hosts = {address.node for address in here if address.on_host} if empty else set()
        if found := self._idle_on_nodes(hosts):
            return found  # processes on GPUs hold main memory, too
        for team in teams:
            free = [a for a in team if empty or self._fits_without_idle(a)]
            if empty or len(free) >= self.request.n_devices:
                found = frozenset(a.device.address for a in free if self._n_idle_on(a))
                if found:
                    return found
        return frozenset()

    def placement(self, chosen: Sequence[DeviceAccount]) -> Placement:
        # Sorted, so that each set of devices has one kind of worker whatever the order.
        shares = tuple(
            DeviceShare(a.device.address, a.device.name, self._reserved_bytes(a))
            for a in sorted(chosen, key=lambda a: a.device.address)
        )
        if not is_size_unknown(self.request, chosen[0]):
            return Placement(shares, exclusive=self.request.alone)
        joins = any(a.n_trials for a in chosen)
        return Placement(shares, exclusive=not joins, probing=joins)

    def _fits(self, a: DeviceAccount, context: int, given_back: int = 0) -> bool:
        request, room = self.request, a.room_bytes + given_back
        if a.device.fault is not None or not self._takes_process(a, context, given_back):
            return False
        if a.exclusive or (request.alone and a.n_trials > 0):
            return False
        if request.undisturbed and not a.is_undisturbed:
            return False
        if request.alone and self._n_idle_on(a) > (context == 0) and not given_back:
            return False  # a trial with a device to itself needs all of it
        if is_size_unknown(request, a) and a.n_trials > 0:
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

    def _has_host_room(self, a: DeviceAccount) -> bool:
        """Return whether the machine of a GPU has room for the process; the account of a host
        already covers this."""
        address = a.device.address
        return address.on_host or self.host_room(address.node).takes(self._idle_to_reuse(a))

    def _takes_process(self, a: DeviceAccount, context: int, given_back: int) -> bool:
        """Return whether the compute mode of the device allows the process that would train the
        trial."""
        most = a.device.max_processes
        if most is None or (context == 0 and most > 0):  # the process is there already
            return True
        return a.n_processes - (self._n_idle_on(a) if given_back else 0) < most

    def _fits_without_idle(self, a: DeviceAccount) -> bool:
        """Return whether the request would fit into a new process if all idle processes there had
        ended."""
        guess = self._n_idle_on(a) * context_bytes(a.device.address)
        given_back = a.idle_bytes or min(guess, a.foreign_bytes)
        return given_back > 0 and self._fits(a, context_bytes(a.device.address), given_back)

    def _context_bytes(self, a: DeviceAccount) -> int:
        """Return what the context of the trial's process will take: nothing where it is there
        already."""
        here, page = a.device.address, a.page
        if self.process is not None and page.has_context(self.process):
            return 0
        idle = self._idle_to_reuse(a)
        return 0 if idle and all(map(page.has_context, idle)) else context_bytes(here)

    def _idle_to_reuse(self, a: DeviceAccount) -> Sequence[ProcessId]:
        """Return idle processes of which the trial would reuse one; none: it needs a new
        process."""
        if not self.idle or self.request.n_devices > 1:
            return ()
        idle = self.idle.get((a.device.address,), ())
        return idle if len(idle) > a.page.n_coming else ()  # else trials to come may take them

    def _n_idle_on(self, a: DeviceAccount) -> int:
        here = a.device.address
        return len(self.idle.get((here,), ())) + self._n_idle_of_several.get(here, 0)

    def _reserved_bytes(self, a: DeviceAccount) -> int:
        if not (self.request.alone or is_size_unknown(self.request, a)):
            return self.request.memory_bytes or 0
        if a.n_trials:
            return self.request.joins_at_bytes or 0
        return max(0, a.room_bytes - self._context_bytes(a))
