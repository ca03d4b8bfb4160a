"""How much of a GPU each running trial may take, so that promises are kept. Pure.

What is promised to nobody is free for everybody; beyond that, who outgrows a promise meets its own
out-of-memory error. A trial alone on its device may take all of it. Caps count what torch holds, as
requests do, and follow each reading: a trial that took of the rest has it counted as its own then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from automl.admission.account import DeviceAccount, account
from automl.admission.ledger import LedgerSnapshot, Reservation
from automl.devices.device import Reading
from automl.trial import DeviceId

Caps: TypeAlias = Mapping[int, Mapping[DeviceId, int]]
"""Bytes of each GPU, by the key of the reservation; a device that is not named is not capped."""


def caps(reading: Reading, ledger: LedgerSnapshot, headroom_bytes: int) -> Caps:
    """Of all that runs."""
    found: dict[int, dict[DeviceId, int]] = {r.key: {} for r in ledger.reservations}
    for device in reading.devices:
        running = ledger.on(device.address)
        if device.address.on_host or len(running) < 2:
            continue
        here = account(device, reading, ledger, headroom_bytes)
        for reservation in running:
            found[reservation.key][device.address] = _cap(reservation, here)
    return found


def _cap(reservation: Reservation, here: DeviceAccount) -> int:
    promised = reservation.counted_bytes(here.device.address)
    return max(1, promised + max(0, here.room_bytes))
