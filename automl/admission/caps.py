"""How much of a GPU each running trial may take, so that promises are kept. Pure.

What is promised to nobody is free for everybody; beyond that, who outgrows a promise meets its own
out-of-memory error. A trial alone on its device may take all of it. Caps count what torch holds, as
requests do, and follow each reading: a trial that took of the rest has it counted as its own then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from automl.admission.account import DeviceAccount
from automl.admission.ledger import Reservation
from automl.trial import DeviceId

Caps: TypeAlias = Mapping[int, Mapping[DeviceId, int]]
"""Bytes of each GPU, by the key of the reservation; a device that is not named is not capped."""


def caps(accounts: Iterable[DeviceAccount], running: Iterable[Reservation]) -> Caps:
    """Of all that runs."""
    found: dict[int, dict[DeviceId, int]] = {held.key: {} for held in running}
    for here in accounts:
        if here.device.address.on_host or here.n_trials < 2:
            continue
        for held in here.page.reservations:
            found[held.key][here.device.address] = _cap(held, here)
    return found


def _cap(reservation: Reservation, here: DeviceAccount) -> int:
    promised = reservation.counted_bytes(here.device.address)
    return max(1, promised + max(0, here.room_bytes))
