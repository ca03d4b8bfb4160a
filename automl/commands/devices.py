"""`devices`: what admission sees of every device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from automl.admission.account import DeviceAccount, account
from automl.admission.ledger import Page
from automl.admission.reasons import gib
from automl.commands.watch import watch
from automl.config import Config, ExecutionKind
from automl.devices.promises import open_promises
from automl.devices.reader import open_reader, take_reading
from automl.errors import AutoMLError
from automl.record.texts import fit_line
from automl.running.console import open_console

COLUMNS = ("CUDA", "NVML", "device", "total", "free", "held by others", "reserved", "room", "load")


def run(config: Config, stored_config: str) -> int:
    """Print one reading of the devices, or go on showing them. Raises AutoMLError."""
    if config.watch:
        return watch(config)
    print_accounts(device_accounts(config))
    if config.execution.kind is ExecutionKind.ray:
        open_console().say(
            "of this machine; those of the other nodes are shown while a sweep is at work on them: "
            "python -m automl status"
        )
    return 0


def device_accounts(config: Config) -> list[DeviceAccount]:
    """One reading of the devices with nothing of ours on them. Raises AutoMLError."""
    with (
        contextlib.closing(open_reader(config.devices)) as reader,
        contextlib.closing(open_promises(reader.addresses)) as promises,
    ):
        reading = take_reading(reader, dict, promises.others)
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    headroom = config.admission.headroom_bytes
    return [account(device, reading, Page(), headroom) for device in reading.devices]


def print_accounts(accounts: Sequence[DeviceAccount]) -> None:
    """A row a device, and a row for each process on it."""
    rows = [row for device in accounts for row in _rows(device)]
    shown = [index for index in range(len(COLUMNS)) if index > 1 or any(row[index] for row in rows)]
    columns = [COLUMNS[index] for index in shown]
    n_left = columns.index("device") + 1
    open_console().table(columns, [[row[index] for index in shown] for row in rows], n_left=n_left)


def _rows(a: DeviceAccount) -> Iterator[tuple[str, ...]]:
    sizes = (a.device.total_bytes, a.device.free_bytes, a.foreign_bytes, a.hold_bytes)
    load = "" if a.device.utilisation is None else f"{a.device.utilisation:.0%}"
    room = gib(max(0, a.room_bytes))
    numbers = [_number(a.device.cuda_number), _number(a.device.nvml_number)]
    yield (*numbers, f"{a.device.address.uuid}  {a.device.name}", *map(gib, sizes), room, load)
    for p in a.device.processes:
        used = "" if p.used_bytes is None else gib(p.used_bytes)
        who = fit_line(f"pid {p.pid} ({p.name or '?'}, user {p.user or '?'})")
        yield ("", "", f"  {who}", "", "", used, "", "", "")


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
