"""Which devices could serve a request at all: those of one node and one kind. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from automl.admission.accounting.account import DeviceAccount
from automl.admission.accounting.host_share import HostRooms
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import (
    AdmissionRefusal,
    RefusalKind,
    all_taken,
    full_by_pace,
    no_such_devices,
    not_held,
    only_on_drained,
    too_large,
)
from automl.trial import DeviceKind, ResourceRequest

SAME_SIZE = 0.99
"""Devices of one model differ a little in what the driver leaves of them."""


def not_lost(accounts: Sequence[DeviceAccount]) -> Sequence[DeviceAccount]:
    return [a for a in accounts if not a.device.lost]


def not_lost_of(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]]
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each team those that are not lost, if enough; in the order of the teams, whoever of them
    is lost."""
    left = [not_lost(team) for team in teams]
    return [team for team in left if len(team) >= request.n_devices]


def closed_to(
    request: ResourceRequest, accounts: Sequence[DeviceAccount], some: bool
) -> AdmissionRefusal | None:
    """Why it could not start even if nothing else ran: on no device, or on none that is well."""
    if (never := _never(request, accounts, some)) is not None:
        return never
    left, well = not_lost(accounts), [a for a in accounts if a.device.fault is None]
    if len(well) == len(accounts):
        return None
    drained = [a.device for a in accounts if a.device.fault is not None]
    if _never(request, left) is not None:
        return only_on_drained(request, drained, RefusalKind.LOST)
    largest = of_largest_size(request, teams_of(request, left)) if request.alone else [left]
    fit = [a for team in largest for a in team if a.device.fault is None]
    if well and _never(request, fit) is not None:
        return only_on_drained(request, drained, RefusalKind.DRAINED)
    return None


def teams_of(
    request: ResourceRequest, accounts: Sequence[DeviceAccount]
) -> Sequence[Sequence[DeviceAccount]]:
    """The devices of each node and kind that could serve the request at all, if enough."""
    teams: dict[tuple[str, DeviceKind], list[DeviceAccount]] = {}
    for a in accounts:
        if a.device.address.kind in request.kinds:
            address = a.device.address
            teams.setdefault((address.node, address.kind), []).append(a)
    return [team for team in teams.values() if len(team) >= request.n_devices]


def _never(
    request: ResourceRequest, accounts: Sequence[DeviceAccount], some: bool = False
) -> AdmissionRefusal | None:
    """Not even if nothing else were there. Of some devices the size tells nothing: with a context
    that is there already it may fit on one that is too small for it and a new one."""
    teams = teams_of(request, accounts)
    if not teams:
        return no_such_devices(request, _most_devices(request, accounts))
    if request.memory_bytes is None or some:
        return None
    tightest = max((_nth_largest(request.n_devices, team) for team in teams), key=_empty_room)
    fits = request.memory_bytes <= tightest.empty_room_bytes
    return None if fits else too_large(request, tightest)


def _most_devices(request: ResourceRequest, accounts: Sequence[DeviceAccount]) -> int:
    counts: dict[tuple[str, DeviceKind], int] = {}
    for a in accounts:
        where = (a.device.address.node, a.device.address.kind)
        counts[where] = counts.get(where, 0) + (a.device.address.kind in request.kinds)
    return max(counts.values(), default=0)


def of_largest_size(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]]
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each node its devices of the largest size, on those nodes that have the largest."""
    sizes = [_nth_largest(request.n_devices, team).device.total_bytes for team in teams]
    least = SAME_SIZE * max(sizes)
    large = [[a for a in team if a.device.total_bytes >= least] for team in teams]
    return [team for team in large if len(team) >= request.n_devices]


def with_places(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]], hosts: HostRooms
) -> Sequence[Sequence[DeviceAccount]]:
    """Of each node the devices that take one more trial, if enough, machines with what they keep
    for their GPUs."""
    free = [[hosts.with_kept(a) for a in team if is_free(request, a, hosts)] for team in teams]
    return [team for team in free if len(team) >= request.n_devices]


def is_free(request: ResourceRequest, a: DeviceAccount, hosts: HostRooms) -> bool:
    """Whether it takes one more trial. (Whoever wants one to itself does not wait for a place on
    it, where it has any.)"""
    most = hosts.most(a.device.address)
    return a.n_trials < most or (_wants_all(request, a) and most > 0)


def all_full(
    accounts: Sequence[DeviceAccount], limits: AdmissionLimits, hosts: HostRooms
) -> AdmissionRefusal:
    """As many share the devices as may, or as are faster together."""
    if all(a.device.closed is not None for a in accounts):
        return not_held([a.device for a in accounts])
    held = [a for a in accounts if 0 < limits.on(a.device.address) <= a.n_trials]
    held = [a for a in held if a.device.address in limits.sharing]
    if not held:
        n_cores = limits.n_cores
        n_on_host = n_cores - sum(hosts.n_kept(a.device.address) for a in accounts)
        return all_taken(limits.max_per_gpu, n_cores, n_on_host, [a.device for a in accounts])
    first = min(held, key=lambda a: a.n_trials)
    return full_by_pace(first, limits.sharing[first.device.address])


def _wants_all(request: ResourceRequest, a: DeviceAccount) -> bool:
    return request.alone or (is_unknown(request, a) and request.joins_at_bytes is None)


def is_unknown(request: ResourceRequest, a: DeviceAccount) -> bool:
    """On the host a trial of unknown size counts by cores."""
    unknown = request.memory_bytes is None and not request.alone
    return unknown and not a.device.address.on_host


def _empty_room(a: DeviceAccount) -> int:
    return a.empty_room_bytes


def _nth_largest(n: int, team: Sequence[DeviceAccount]) -> DeviceAccount:
    return heapq.nlargest(n, team, key=_empty_room)[-1]
