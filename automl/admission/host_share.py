"""What a trial on a GPU takes of the machine besides: main memory and cores. Pure.

Main memory is as scarce as a GPU's, and whoever takes too much of it is killed. So each process is
counted with the most that any of them was seen to take; cores, which are only shared, count where
every one of them is busy.
"""

from __future__ import annotations

from automl.admission.ledger import LedgerSnapshot
from automl.admission.reasons import Refusal, gib
from automl.devices.device import Reading
from automl.trial import HOST, DeviceId

PROCESS_BOUND_BYTES = 1024**3
"""Of main memory, until a process was seen that trains: CUDA's and torch's libraries, and some."""
BUSY = 0.95
"""Share of the cores from which on they are used up."""


def no_host_room(
    reading: Reading,
    ledger: LedgerSnapshot,
    headroom_bytes: int,
    n_cores_allow: int,
    idle: frozenset[DeviceId],
) -> Refusal | None:
    """Why no further process starts on a GPU of this machine. The first always may.

    `idle`: devices with processes of ours in which nothing runs: they hold main memory, too.
    """
    running = [r for r in ledger.reservations if not r.placement.on_host]
    if reading.host is None or not running:
        return None
    most = ledger.host_peak_bytes or PROCESS_BOUND_BYTES
    held = {
        process: size for (where, process), size in reading.reserved_after.items() if where == HOST
    }
    coming = sum(max(0, most - held.get(r.holder, 0)) for r in running)
    room = reading.host.free_bytes - coming - headroom_bytes
    if most > room:
        return Refusal(
            f"waiting: {gib(most)} of main memory asked for its process, {gib(max(0, room))} left "
            f"on the host beside {len(running)} running",
            in_the_way=idle,
        )
    if len(running) >= n_cores_allow and (reading.host.busy or 0) >= BUSY:
        return Refusal(f"waiting: all cores of the host are busy, with {len(running)} running")
    return None
