"""How much of a GPU each running trial may take, so that promises are kept. Pure.

What is promised to nobody is free for everybody; beyond that, who outgrows a promise meets its own
out-of-memory error. A trial alone on its device may take all of it. Caps count what torch holds, as
requests do, and follow each reading: a trial that took of the rest has it counted as its own then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from automl.admission.account import DeviceAccount
from automl.admission.ledger import LedgerSnapshot, Reservation
from automl.trial import DeviceId

Caps: TypeAlias = Mapping[int, Mapping[DeviceId, int]]
"""Bytes of each GPU, by the key of the reservation; a device that is not named is not capped."""


def caps(
    accounts: Mapping[DeviceId, DeviceAccount], ledger: LedgerSnapshot, on: Iterable[DeviceId]
) -> Caps:
    """Of all that runs on these devices."""
    running = {held.key: held for device in on for held in ledger.on(device).reservations}
    return {key: _of(held, accounts) for key, held in running.items()}


def _of(held: Reservation, accounts: Mapping[DeviceId, DeviceAccount]) -> Mapping[DeviceId, int]:
    found = {}
    for device in held.placement.devices:
        here = accounts.get(device)
        if here is not None and not device.on_host and here.n_trials > 1:
            found[device] = _cap(held, here)
    return found


def _cap(reservation: Reservation, here: DeviceAccount) -> int:
    promised = reservation.counted_bytes(here.device.address)
    return max(1, promised + max(0, here.room_bytes))
