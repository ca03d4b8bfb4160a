"""Whether a trial may start now, and on which devices. Pure: no lock, no clock, no NVML, no torch.

    admit  ⇔  request ≤ room  and  the reading is fresh  and  running < limit

on each of the devices it asks for, all of them on one node, or nothing. `account.py` has the
formula of room, `reasons.py` the words of a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automl.admission.account import DeviceAccount, account, context_bytes
from automl.admission.ledger import LedgerSnapshot
from automl.admission.reasons import (
    Refusal,
    at_limit,
    no_room,
    no_such_devices,
    too_large,
    unfit,
)
from automl.devices.device import Reading
from automl.trial import DeviceKind, Placement, ProcessId, Request, Share

_SAME_SIZE = 0.99
"""Devices of one model differ a little in what the driver leaves of them."""


@dataclass(frozen=True)
class Limits:
    """What the config sets for admission."""

    max_concurrent_trials: int
    headroom_bytes: int
    stale_seconds: float


def place(
    request: Request,
    reading: Reading | None,
    ledger: LedgerSnapshot,
    limits: Limits,
    *,
    now_seconds: float,
    process: ProcessId | None = None,
) -> Placement | Refusal:
    """Choose devices, or say why there are none.

    Trials spread over devices first (fewest trials, then least busy): idle GPUs are the greater
    waste, and first come, first served already keeps large requests from starving. Among equals
    the device left with the least room is taken, so that large requests find one whole.

    Parameters
    ----------
    process: that which would train it, where it is known before (threads of this process).
    now_seconds: `time.monotonic()`.
    """
    if (unseen := unfit(reading, limits.stale_seconds, now_seconds)) is not None:
        return unseen
    assert reading is not None
    accounts = [account(d, reading, ledger, limits.headroom_bytes) for d in reading.devices]
    teams = _teams(request, accounts)
    if (never := _never(request, accounts, teams)) is not None:
        return never
    if len(ledger.reservations) >= limits.max_concurrent_trials:
        return at_limit(limits.max_concurrent_trials)
    if request.alone:
        teams = _largest(request, teams)
    fitting = _fitting(request, teams, ledger, process)
    if not fitting:
        return no_room(request, [a for team in teams for a in team])
    return _placement(request, min(fitting, key=lambda chosen: [_order(a) for a in chosen]))


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
    request: Request,
    accounts: Sequence[DeviceAccount],
    teams: Sequence[Sequence[DeviceAccount]],
) -> Refusal | None:
    """Not even if nothing else were there."""
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


def _fitting(
    request: Request,
    teams: Sequence[Sequence[DeviceAccount]],
    ledger: LedgerSnapshot,
    process: ProcessId | None,
) -> Sequence[Sequence[DeviceAccount]]:
    """The best devices of each node and kind that has enough with room."""
    fitting = []
    for team in teams:
        fit = sorted((a for a in team if _fits(request, a, ledger, process)), key=_order)
        if len(fit) >= request.n_devices:
            fitting.append(fit[: request.n_devices])
    return fitting


def _fits(
    request: Request, a: DeviceAccount, ledger: LedgerSnapshot, process: ProcessId | None
) -> bool:
    if a.exclusive or (_wants_all(request, a) and a.n_trials > 0):
        return False
    has_context = process is not None and (a.device.address, process) in ledger.contexts
    context = 0 if has_context else context_bytes(a.device.address)
    if request.memory_bytes is None and not a.device.address.on_host:
        return a.room_bytes - context > 0
    return (request.memory_bytes or 0) + context <= a.room_bytes


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


def _placement(request: Request, chosen: Sequence[DeviceAccount]) -> Placement:
    shares = tuple(
        Share(a.device.address, a.device.name, _reserved_bytes(request, a)) for a in chosen
    )
    return Placement(shares, exclusive=_wants_all(request, chosen[0]))


def _reserved_bytes(request: Request, a: DeviceAccount) -> int:
    if not _wants_all(request, a):
        return request.memory_bytes or 0
    return max(0, a.room_bytes - context_bytes(a.device.address))
