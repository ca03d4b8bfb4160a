"""`devices`: what admission sees of every device; with `execution=ray` of every node's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from automl.admission.account import DeviceAccount, account
from automl.admission.ledger import Page
from automl.admission.reasons import gib
from automl.commands.watch import on_cluster, watch
from automl.config import Config
from automl.devices.device import Reading
from automl.devices.nodes import NodeReading, merged
from automl.devices.promises import open_promises
from automl.devices.reader import open_reader, take_reading
from automl.errors import AutoMLError
from automl.record.texts import fit_line
from automl.running.console import open_console
from automl.trial import LOCAL_NODE

COLUMNS = (
    *("node", "CUDA", "NVML", "device"),
    *("total", "free", "held by others", "reserved", "room", "load"),
)


def run(config: Config, stored_config: str) -> int:
    """Print one reading of the devices, or go on showing them. Raises AutoMLError."""
    if config.watch:
        return watch(config)
    if on_cluster(config):
        _print_nodes(config)
    else:
        print_accounts(device_accounts(config))
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
    return _accounts(reading, config)


def _accounts(reading: Reading, config: Config) -> list[DeviceAccount]:
    headroom = config.admission.headroom_bytes
    return [account(device, reading, Page(), headroom) for device in reading.devices]


def _print_nodes(config: Config) -> None:
    """One table of all, and what keeps the devices of a node from it. Raises AutoMLError."""
    from automl.running.looking import open_nodes, unread  # with all that speaks to nodes
    from automl.running.machines import readings

    with open_nodes(config) as nodes:
        print_nodes(readings(nodes), config)
        for name in unread(nodes):
            open_console().say(f"{name}: its devices do not answer", "red")


def print_nodes(found: Sequence[NodeReading], config: Config) -> None:
    """What the nodes said, by their names. Raises AutoMLError where none could read its devices."""
    found = sorted(found, key=lambda of: of.node)
    reading = merged(found, time.monotonic())
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    print_accounts(_accounts(reading, config))
    for of in found:
        if of.reading.error is not None:
            why = fit_line(of.reading.error)
            open_console().say(f"{of.node}: the devices cannot be read: {why}", "red")


def print_accounts(accounts: Sequence[DeviceAccount]) -> None:
    """A row a device, and a row for each process on it."""
    rows = [row for device in accounts for row in _rows(device)]
    n_if_any = COLUMNS.index("device")
    shown = [n for n in range(len(COLUMNS)) if n >= n_if_any or any(row[n] for row in rows)]
    columns = [COLUMNS[index] for index in shown]
    n_left = columns.index("device") + 1
    open_console().table(columns, [[row[index] for index in shown] for row in rows], n_left=n_left)


def _rows(a: DeviceAccount) -> Iterator[tuple[str, ...]]:
    sizes = (a.device.total_bytes, a.device.free_bytes, a.foreign_bytes, a.hold_bytes)
    load = "" if a.device.utilisation is None else f"{a.device.utilisation:.0%}"
    room = gib(max(0, a.room_bytes))
    node = "" if a.device.address.node == LOCAL_NODE else fit_line(a.device.address.node)
    names = (node, _number(a.device.cuda_number), _number(a.device.nvml_number))
    yield (*names, f"{a.device.address.uuid}  {a.device.name}", *map(gib, sizes), room, load)
    for p in a.device.processes:
        used = "" if p.used_bytes is None else gib(p.used_bytes)
        who = fit_line(f"pid {p.pid} ({p.name or '?'}, user {p.user or '?'})")
        yield (node, "", "", f"  {who}", "", "", used, "", "", "")


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
