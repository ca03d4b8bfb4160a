"""Whether a trial may start now, and on which devices. Pure: no lock, no clock, no NVML, no torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit, here and over all
              and  the device is well  and  its host has main memory and cores for one more

on each of the devices it asks for, all of them on one node, or nothing. `account.py` has the
formula of room, `host_share.py` that of the host, `device_teams.py` which devices come into
question,
`refusals.py` the words of a refusal; `device_index.py` finds one of thousands without looking at
all, and
`host_share.py` adds up the machines of those that are looked at.
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
    all_full,
    closed_to,
    is_free,
    is_unknown,
    not_lost_of,
    of_largest_size,
    teams_of,
    with_places,
)
from automl.admission.accounting.host_share import HostRoom, HostRooms
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import (
    AdmissionRefusal,
    all_gpus_taken,
    at_limit,
    full_by_pace,
    no_host_room,
    no_room,
    no_room_even_on,
    too_large,
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
    some: bool = False,
) -> Placement | AdmissionRefusal:
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
    if (unseen := unfit_devices(reading, limits.stale_seconds, now_seconds)) is not None:
        return unseen
    assert reading is not None
    books = accounts or DeviceAccounts()
    idle, in_threads = idle or {}, process is not None
    hosts = HostRooms(reading, ledger, limits, books.host_share, idle=idle, in_threads=in_threads)
    asked = _PlacementSearch(request, ledger, process, idle, hosts, hosts.room)
    if accounts is not None and request.n_devices == 1 and not some:
        found = asked.among(accounts.shelves(reading, ledger, limits), limits)
        if found is not None:
            return found
    everything = [*books.of(reading, ledger, limits.headroom_bytes).values()]
    if (closed := closed_to(request, everything, some)) is not None:
        return closed
    cap = limits.max_concurrent_trials
    if cap is not None and ledger.n_reservations >= cap:
        return at_limit(cap)
    teams = not_lost_of(request, teams_of(request, everything))
    if request.alone:
        teams = of_largest_size(request, teams)
    free = with_places(request, teams, hosts)
    if not free:
        return all_full([a for team in teams for a in team], limits, hosts)
    return asked.decide(free)


@dataclass(frozen=True)
class _PlacementSearch:
    """A request, and the processes that could serve it."""

    request: ResourceRequest
    ledger: LedgerSnapshot
    process: ProcessId | None
    idle: Idle
    hosts: HostRooms
    host_room: Callable[[str], HostRoom]
    """Of the machine of a GPU."""

    @cached_property
    def _with_idle(self) -> frozenset[DeviceId]:
        """Devices with idle processes."""
        return frozenset(itertools.chain(*(d for d, processes in self.idle.items() if processes)))

    @cached_property
    def _n_idle_of_several(self) -> Mapping[DeviceId, int]:
        """Idle processes of several devices each, by device."""
        n_idle: dict[DeviceId, int] = {}
        if sum(map(len, self.idle)) > len(self.idle):  # there may be thousands of one device each
            for devices, processes in self.idle.items():
                for device in devices if len(devices) > 1 else ():
                    n_idle[device] = n_idle.get(device, 0) + len(processes)
        return n_idle

    def among(
        self, shelves: DeviceIndex, limits: AdmissionLimits
    ) -> Placement | AdmissionRefusal | None:
        """The same as `place_trial` decides of all accounts, by a few that are looked at; None:
        they have
        to be looked at."""
        request, cap = self.request, limits.max_concurrent_trials
        if (largest := shelves.too_small(request)) is not None:
            return too_large(request, largest)
        if not shelves.is_open_to(request):
            return None
        if cap is not None and self.ledger.n_reservations >= cap:
            return at_limit(cap)
        if not shelves.has_places(request):
            held = shelves.held(request)
            if held is not None:
                return full_by_pace(held, limits.sharing[held.device.address])
            return all_gpus_taken(limits.max_per_gpu) if shelves.has_gpus(request) else None
        lacking: dict[str, DeviceAccount] = {}

        def fits(a: DeviceAccount) -> bool:
            return self._fits_filed(a, lacking)

        if fitting := shelves.fitting(request, fits, self._may_be_on):
            return self.placement([self.hosts.with_kept(min(fitting, key=self.order))])
        if shelves.has_hosts_of_gpus and DeviceKind.CPU in request.kinds:
            return None
        if lacking:
            return self._no_host_room([*lacking.values()])
        roomiest = shelves.shown(request)
        if roomiest is None or not self.ledger.n_reservations:
            return None
        return no_room_even_on(roomiest, request, self._idle_in_the_way(shelves))

    def _idle_in_the_way(self, shelves: DeviceIndex) -> frozenset[DeviceId]:
        """As `in_the_way`, while something runs."""
        # Of unknown size it takes what an empty GPU has, and on a host cores alone count.
        least_bytes = self.request.memory_bytes or 0
        team, found = None, []
        for a in shelves.with_idle(self.request, least_bytes):
            address = a.device.address
            if team is not None and (address.node, address.kind) != team:
                break
            if self._n_idle_on(a) and self._fits_without_idle(a):
                team = address.node, address.kind
                found.append(address)
        return frozenset(found)

    @property
    def _beside_nothing(self) -> _PlacementSearch:
        """The same on machines that have room for any process."""
        return replace(self, host_room=lambda node: HostRoom())

    def _fits_now(self, a: DeviceAccount) -> bool:
        return self._fits(a, self._context_bytes(a)) and self._has_host_room(a)

    def _fits_filed(self, a: DeviceAccount, lacking: dict[str, DeviceAccount]) -> bool:
        """The same of one that is not known to be free. Of each node the first that only lacks
        something of its machine is added to `lacking`: they come in the order of `order`."""
        address = a.device.address
        if address.on_host:
            return is_free(self.request, a, self.hosts) and self._fits_now(self.hosts.with_kept(a))
        if address.node in lacking and not self._used_again(a):
            return False  # nor has it room for this one's process
        if not self._fits(a, self._context_bytes(a)):
            return False
        if self._has_host_room(a):
            return True
        lacking.setdefault(address.node, a)
        return False

    def _no_host_room(self, lacking: Sequence[DeviceAccount]) -> AdmissionRefusal:
        """Of these GPUs, each the first of those that would be taken: by the machine on which idle
        processes could be ended, if there is one."""
        with_idle = {device.node for device in self._with_idle}
        first = min(lacking, key=lambda a: (a.device.address.node not in with_idle, self.order(a)))
        node = first.device.address.node
        return no_host_room(node, self.host_room(node), self._idle_on_nodes({node}))

    def _idle_on_nodes(self, nodes: Set[str]) -> frozenset[DeviceId]:
        return frozenset(device for device in self._with_idle if device.node in nodes)

    def _may_be_on(self, device: DeviceId) -> bool:
        """Whether a process that would train it may be there already."""
        return self.process is not None or (device,) in self.idle

    def decide(self, teams: Sequence[Sequence[DeviceAccount]]) -> Placement | AdmissionRefusal:
        """The best of those that have room for it, or what is lacking."""
        if fitting := self.fitting(teams):
            return self.placement(min(fitting, key=lambda team: [self.order(a) for a in team]))
        if lacking := self._beside_nothing.fitting(teams):
            return self._no_host_room([team[0] for team in lacking])
        return no_room(self.request, [a for team in teams for a in team], self.in_the_way(teams))

    def fitting(self, teams: Sequence[Sequence[DeviceAccount]]) -> list[list[DeviceAccount]]:
        """The best devices of each node and kind that has enough with room."""
        fitting = []
        for team in teams:
            fit = [a for a in team if self._fits_now(a)]
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
                self._fits(a, 0)
                and self._has_host_room(a)
                and all(map(a.page.has_context, processes))
                for a in chosen
            ):
                yield chosen

    def order(self, a: DeviceAccount) -> tuple[float, float, int, DeviceId]:
        """Of those that have room the first is taken. Nobody knows how much one of unknown size
        needs: it takes the most that there is."""
        if not is_unknown(self.request, a):
            return a.order
        return a.n_trials > 0, -a.room_bytes, a.n_trials, a.device.address

    def in_the_way(self, teams: Sequence[Sequence[DeviceAccount]]) -> frozenset[DeviceId]:
        """Devices that would do if idle processes of ours ended there; where nothing runs at all,
        every one that has some: it cannot be known too well what they hold."""
        empty = not self.ledger.n_reservations
        here = (a.device.address for a in itertools.chain(*teams))
        hosts = {address.node for address in here if address.on_host} if empty else set()
        if found := self._idle_on_nodes(hosts):
            return found  # those of GPUs have main memory, too
        for team in teams:
            free = [a for a in team if empty or self._fits_without_idle(a)]
            if empty or len(free) >= self.request.n_devices:
                found = frozenset(a.device.address for a in free if self._n_idle_on(a))
                if found:
                    return found
        return frozenset()

    def placement(self, chosen: Sequence[DeviceAccount]) -> Placement:
        shares = tuple(
            DeviceShare(a.device.address, a.device.name, self._reserved_bytes(a))
            for a in sorted(chosen, key=lambda a: a.device.address)  # a set has one kind of worker
        )
        if not is_unknown(self.request, chosen[0]):
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
            return False  # with a device to itself it has to have all of it
        if is_unknown(request, a) and a.n_trials > 0:
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
        """Beside a GPU. What a machine takes itself its own account tells."""
        address = a.device.address
        return address.on_host or self.host_room(address.node).takes(self._used_again(a))

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
        here = a.device.address
        return len(self.idle.get((here,), ())) + self._n_idle_of_several.get(here, 0)

    def _reserved_bytes(self, a: DeviceAccount) -> int:
        if not (self.request.alone or is_unknown(self.request, a)):
            return self.request.memory_bytes or 0
        if a.n_trials:
            return self.request.joins_at_bytes or 0
        return max(0, a.room_bytes - self._context_bytes(a))
