"""Selects the devices that could serve a request at all, as teams of one node and one kind. Pure.

A trial of several devices gets all of them from one team. Memory and contexts are not considered
here, but in `placement_policy.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from automl.admission.accounting.account import DeviceAccount
from automl.admission.accounting.host_share import HostRooms
from automl.admission.limits import AdmissionLimits
from automl.admission.refusals import (
    AdmissionRefusal,
    RefusalKind,
    all_closed,
    all_taken_refusal,
    full_by_pace_refusal,
    no_such_devices_refusal,
    only_on_drained_refusal,
    too_large_refusal,
)
from automl.trial import DeviceKind, ResourceRequest

SAME_SIZE_FRACTION = 0.99
"""Sizes within this ratio count as equal, since the driver leaves a little more or less of devices
of one model."""


def not_lost(accounts: Sequence[DeviceAccount]) -> Sequence[DeviceAccount]:
    return [a for a in accounts if not a.device.lost]


def drop_lost_devices(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]]
) -> Sequence[Sequence[DeviceAccount]]:
    """Return of each team the devices that are not lost, if they are enough.

    The order of the teams stays, whichever devices are lost.
    """
    left = [not_lost(team) for team in teams]
    return [team for team in left if len(team) >= request.n_devices]


def closed_devices_refusal(
    request: ResourceRequest, accounts: Sequence[DeviceAccount], devices_are_partial: bool
) -> AdmissionRefusal | None:
    """Return why the request could not start even if nothing else ran; None: it could.

    Either no device could hold it, or no device that is well.
    """
    if (never := _never(request, accounts, devices_are_partial)) is not None:
        return never
    left, well = not_lost(accounts), [a for a in accounts if a.device.fault is None]
    if len(well) == len(accounts):
        return None
    drained = [a.device for a in accounts if a.device.fault is not None]
    if _never(request, left) is not None:
        return only_on_drained_refusal(request, drained, RefusalKind.LOST)
    largest = (
        keep_largest_devices(request, device_teams(request, left)) if request.alone else [left]
    )
    fit = [a for team in largest for a in team if a.device.fault is None]
    if well and _never(request, fit) is not None:
        return only_on_drained_refusal(request, drained, RefusalKind.DRAINED)
    return None


def device_teams(
    request: ResourceRequest, accounts: Sequence[DeviceAccount]
) -> Sequence[Sequence[DeviceAccount]]:
    """Return the devices of each node and kind that could serve the request at all, if they are
    enough."""
    teams: dict[tuple[str, DeviceKind], list[DeviceAccount]] = {}
    for a in accounts:
        if a.device.address.kind in request.kinds:
            address = a.device.address
            teams.setdefault((address.node, address.kind), []).append(a)
    return [team for team in teams.values() if len(team) >= request.n_devices]


def _never(
    request: ResourceRequest, accounts: Sequence[DeviceAccount], devices_are_partial: bool = False
) -> AdmissionRefusal | None:
    """Return why the request would not fit even if nothing else were there; None: it would.

    If `devices_are_partial`, the sizes tell nothing: with a context that is there already the
    request may fit on a device that is too small for it and a new context.
    """
    teams = device_teams(request, accounts)
    if not teams:
        return no_such_devices_refusal(request, _most_devices(request, accounts))
    if request.memory_bytes is None or devices_are_partial:
        return None
    tightest = max((_nth_largest(request.n_devices, team) for team in teams), key=_empty_room)
    fits = request.memory_bytes <= tightest.empty_room_bytes
    return None if fits else too_large_refusal(request, tightest)


def _most_devices(request: ResourceRequest, accounts: Sequence[DeviceAccount]) -> int:
    counts: dict[tuple[str, DeviceKind], int] = {}
    for a in accounts:
        where = (a.device.address.node, a.device.address.kind)
        counts[where] = counts.get(where, 0) + (a.device.address.kind in request.kinds)
    return max(counts.values(), default=0)


def keep_largest_devices(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]]
) -> Sequence[Sequence[DeviceAccount]]:
    """Return of each node its devices of the largest size, on the nodes that have the largest."""
    sizes = [_nth_largest(request.n_devices, team).device.total_bytes for team in teams]
    least = SAME_SIZE_FRACTION * max(sizes)
    large = [[a for a in team if a.device.total_bytes >= least] for team in teams]
    return [team for team in large if len(team) >= request.n_devices]


def keep_devices_with_places(
    request: ResourceRequest, teams: Sequence[Sequence[DeviceAccount]], hosts: HostRooms
) -> Sequence[Sequence[DeviceAccount]]:
    """Return of each node the devices that take one more trial, if they are enough.

    The accounts of machines show what is kept there for their GPUs.
    """
    free = [
        [hosts.with_kept(a) for a in team if has_free_place(request, a, hosts)] for team in teams
    ]
    return [team for team in free if len(team) >= request.n_devices]


def has_free_place(request: ResourceRequest, a: DeviceAccount, hosts: HostRooms) -> bool:
    """Return whether the device takes one more trial.

    A request for a device to itself waits for no place on it, if the device has any places.
    """
    most_trials = hosts.most_trials(a.device.address)
    return a.n_trials < most_trials or (_wants_all(request, a) and most_trials > 0)


def all_full_refusal(
    accounts: Sequence[DeviceAccount], limits: AdmissionLimits, hosts: HostRooms
) -> AdmissionRefusal:
    """Return the refusal that as many trials share the devices as may, or as are faster
    together."""
    if all(a.device.closed is not None for a in accounts):
        return all_closed([a.device for a in accounts])
    held = [a for a in accounts if 0 < limits.on(a.device.address) <= a.n_trials]
    held = [a for a in held if a.device.address in limits.sharing]
    if not held:
        n_cores = limits.n_cores
        n_on_host = n_cores - sum(hosts.n_kept(a.device.address) for a in accounts)
        return all_taken_refusal(
            limits.max_per_gpu, n_cores, n_on_host, [a.device for a in accounts]
        )
    first = min(held, key=lambda a: a.n_trials)
    return full_by_pace_refusal(first, limits.sharing[first.device.address])


def _wants_all(request: ResourceRequest, a: DeviceAccount) -> bool:
    return request.alone or (is_size_unknown(request, a) and request.joins_at_bytes is None)


def is_size_unknown(request: ResourceRequest, a: DeviceAccount) -> bool:
    """Return whether the request's size is unknown there; on the host such a trial counts by
    cores."""
    unknown = request.memory_bytes is None and not request.alone
    return unknown and not a.device.address.on_host


def _empty_room(a: DeviceAccount) -> int:
    return a.empty_room_bytes


def _nth_largest(n: int, team: Sequence[DeviceAccount]) -> DeviceAccount:
    return heapq.nlargest(n, team, key=_empty_room)[-1]
