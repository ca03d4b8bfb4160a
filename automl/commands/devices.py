"""`devices`: shows what admission sees of every device; with `execution=ray`, of every device of
every node.

In a terminal it shows every device, the trials on it, other users' processes and the queues until
Ctrl-C; elsewhere it prints a table once. `watch=…` says which of both. Memory is read here, with
`execution=ray` on every node. The `status.json` files of the sweeps in `study.dir` say which part
is ours and what waits. Nothing is reserved or decided here.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from automl.admission.accounting.account import DeviceAccount, make_account
from automl.admission.accounting.ledger import DeviceLedgerPage
from automl.admission.refusals import gib_text
from automl.commands.command_call import CommandCall
from automl.config import Config, ExecutionKind
from automl.config.command_arguments import DevicesArguments
from automl.config.execution import LOCAL_ADDRESS
from automl.devices.device_reader import (
    FIRST_READING_SECONDS,
    READING_SECONDS,
    ReaderThread,
    ReadOtherPromises,
    open_device_reader,
    take_reading,
)
from automl.devices.device_reading import (
    DeviceReader,
    DeviceReading,
    NodeReading,
    NodesReader,
    merge_node_readings,
)
from automl.devices.memory_promises import open_promises
from automl.errors import AutoMLError
from automl.record.studies import is_study_held, study_names
from automl.record.study_files import StudyFiles
from automl.record.texts import fit_line
from automl.terminal.console import open_console
from automl.terminal.devices_view import (
    STALE_VIEW_SECONDS,
    WatchedDevice,
    WatchSnapshot,
    limit_to_machine,
    show_once,
    show_until_stopped,
)
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.view import SweepView, device_row, load_view
from automl.trial import LOCAL_NODE

SHOWN_SECONDS = 1.0
"""Seconds between two views; a sweep writes its own as often."""


def watch_devices(config: Config) -> int:
    """Show the devices until Ctrl-C, or once if stdout is no terminal. Raises AutoMLError where
    they cannot be read at all."""
    console = open_console()
    with _source(config) as source, _readings(source, config) as readings:
        seen = snapshots_until_cluster_lost(_snapshots(readings, config), source.lost)
        if not console.is_terminal:
            show_once(console, next(seen))
            return 0
        with _exit_on_sigterm():
            show_until_stopped(console, seen, lambda: time.sleep(SHOWN_SECONDS))
    return 0


def watches_cluster(config: Config) -> bool:
    """Return whether the devices are in a cluster's nodes; a cluster that a sweep starts itself has
    only this machine."""
    return config.execution.kind is ExecutionKind.ray and config.ray.address != LOCAL_ADDRESS


@dataclass(frozen=True)
class _WatchSource:
    """The readers that `devices watch=true` shows, of this machine or of a cluster."""

    reader: DeviceReader
    elsewhere: ReadOtherPromises | None = None
    lost: Callable[[], AutoMLError | None] = lambda: None
    """Returns the error if nothing can be read any more, else None."""


@contextlib.contextmanager
def _source(config: Config) -> Iterator[_WatchSource]:
    if watches_cluster(config):
        from automl.running.opening.cluster_machines import (
            node_readings,
            open_cluster_nodes,  # loads the modules of clusters
        )

        with open_cluster_nodes(config) as nodes:
            cluster = NodesReader(
                lambda: sorted(node_readings(nodes), key=lambda reading: reading.node)
            )
            yield _WatchSource(cluster, lost=nodes.lost)
        return
    with (
        contextlib.closing(open_device_reader(config.devices)) as reader,
        contextlib.closing(open_promises(reader.addresses)) as promises,
    ):
        yield _WatchSource(reader, promises.others)


@contextlib.contextmanager
def _readings(source: _WatchSource, config: Config) -> Iterator[queue.SimpleQueue[DeviceReading]]:
    """Yield a queue of readings. A thread takes them, so that Ctrl-C is handled while the driver
    hangs."""
    readings: queue.SimpleQueue[DeviceReading] = queue.SimpleQueue()
    thread = ReaderThread(source.reader, READING_SECONDS, dict, readings.put, source.elsewhere)
    thread.start()
    try:
        yield readings
    finally:
        thread.stop()


def snapshots_until_cluster_lost(
    seen: Iterator[WatchSnapshot], lost: Callable[[], AutoMLError | None]
) -> Iterator[WatchSnapshot]:
    """Yield the snapshots while the cluster answers. Raise the error that `lost` returns once the
    connection to the cluster is lost; on one machine it never is."""
    for watched in seen:
        if (error := lost()) is not None:
            raise error
        yield watched


def _snapshots(
    readings: queue.SimpleQueue[DeviceReading], config: Config
) -> Iterator[WatchSnapshot]:
    try:
        last_good = newest_reading = readings.get(timeout=FIRST_READING_SECONDS)
    except queue.Empty:
        raise AutoMLError(
            f"the devices have not answered for {FIRST_READING_SECONDS:g} s; does nvidia-smi "
            f"answer?"
        ) from None
    if last_good.error is not None:
        raise AutoMLError(f"the devices cannot be read: {last_good.error}")
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                newest_reading = readings.get_nowait()
                last_good = last_good if newest_reading.error is not None else newest_reading
        yield _snapshot_of(last_good, newest_reading.error, config)


def _snapshot_of(reading: DeviceReading, error: str | None, config: Config) -> WatchSnapshot:
    headroom = config.admission.headroom_bytes
    devices = [
        WatchedDevice(
            device_row(make_account(d, reading, DeviceLedgerPage(), headroom), reading), d.processes
        )
        for d in reading.devices
    ]
    age, problem = time.monotonic() - reading.begun_seconds, None
    if error is not None:
        problem = f"the devices cannot be read now: {error}"
    elif age > STALE_VIEW_SECONDS:
        problem = f"the devices have not answered for {age:.0f} s"
    folder, here = config.study.dir, socket.gethostname()
    sweeps = living_sweeps(Path(folder))
    if not watches_cluster(config):  # a cluster's nodes have the same names everywhere
        sweeps = [limit_to_machine(sweep, here) for sweep in sweeps]
    return WatchSnapshot(time.time(), devices, sweeps, folder, problem)


def living_sweeps(folder: Path) -> list[SweepView]:
    """Return the views of the sweeps at work on a study of the folder, by name. A study that may
    not be read, or has shown nothing yet, is left out."""
    views = []
    for name in sorted(study_names(folder)):
        with contextlib.suppress(OSError, ValueError):
            if is_study_held(folder / name):
                view = load_view(StudyFiles(folder / name).status)
                if view.ended is None:
                    views.append(view)
    return views


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM within the block, so that the terminal gets its cursor back
    first."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


COLUMNS = (
    *("node", "CUDA", "NVML", "device"),
    *("total", "free", "held by others", "reserved", "room", "load"),
)


def run(call: CommandCall) -> int:
    """Print one reading of the devices, or keep showing them. Raises AutoMLError."""
    config = call.config
    watch = call.typed_arguments(DevicesArguments).watch
    if watch or (watch is None and not wants_answer() and open_console().is_terminal):
        return watch_devices(config)
    if watches_cluster(config):
        _print_nodes(config)
    else:
        print_accounts(read_device_accounts(config))
    return 0


def read_device_accounts(config: Config) -> list[DeviceAccount]:
    """Read the devices once, and return their accounts as if no trial ran on them. Raises
    AutoMLError."""
    with (
        contextlib.closing(open_device_reader(config.devices)) as reader,
        contextlib.closing(open_promises(reader.addresses)) as promises,
    ):
        reading = take_reading(reader, dict, promises.others)
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    return _accounts(reading, config)


def _accounts(reading: DeviceReading, config: Config) -> list[DeviceAccount]:
    headroom = config.admission.headroom_bytes
    return [
        make_account(device, reading, DeviceLedgerPage(), headroom) for device in reading.devices
    ]


def _print_nodes(config: Config) -> None:
    """Print one table of all nodes' devices, and the nodes that do not answer. Raises
    AutoMLError."""
    from automl.running.opening.cluster_machines import (  # loads the modules of clusters
        node_readings,
        open_cluster_nodes,
        unread_nodes,
    )

    with open_cluster_nodes(config) as nodes:
        print_nodes(node_readings(nodes), config)
        for name in unread_nodes(nodes):
            open_console().say(f"{name}: its devices do not answer", "red")


def print_nodes(node_readings: Sequence[NodeReading], config: Config) -> None:
    """Print the nodes' readings, sorted by name. Raises AutoMLError where no node could read its
    devices."""
    node_readings = sorted(node_readings, key=lambda node_reading: node_reading.node)
    reading = merge_node_readings(node_readings, time.monotonic())
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    print_accounts(_accounts(reading, config))
    for node_reading in node_readings:
        if node_reading.reading.error is not None:
            why = fit_line(node_reading.reading.error)
            open_console().say(f"{node_reading.node}: the devices cannot be read: {why}", "red")


def print_accounts(accounts: Sequence[DeviceAccount]) -> None:
    """Print a row for each device, and a row for each process on it."""
    if wants_answer():
        write_answer({"devices": [_answer(account) for account in accounts]})
        return
    rows = [row for device in accounts for row in _rows(device)]
    n_optional = COLUMNS.index("device")
    shown = [n for n in range(len(COLUMNS)) if n >= n_optional or any(row[n] for row in rows)]
    columns = [COLUMNS[index] for index in shown]
    n_left = columns.index("device") + 1
    open_console().table(columns, [[row[index] for index in shown] for row in rows], n_left=n_left)


def _answer(a: DeviceAccount) -> dict[str, object]:
    device = a.device
    return {
        "node": device.address.node,
        "uuid": device.address.uuid,
        "name": device.name,
        "cuda_number": device.cuda_number,
        "nvml_number": device.nvml_number,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "foreign_bytes": a.foreign_bytes,
        "reserved_bytes": a.hold_bytes,
        "room_bytes": max(0, a.room_bytes),
        "load": device.utilisation,
        "processes": [
            {"pid": p.pid, "name": p.name, "user": p.user, "used_bytes": p.used_bytes}
            for p in device.processes
        ],
    }


def _rows(a: DeviceAccount) -> Iterator[tuple[str, ...]]:
    sizes = (a.device.total_bytes, a.device.free_bytes, a.foreign_bytes, a.hold_bytes)
    load = "" if a.device.utilisation is None else f"{a.device.utilisation:.0%}"
    room = gib_text(max(0, a.room_bytes))
    node = "" if a.device.address.node == LOCAL_NODE else fit_line(a.device.address.node)
    names = (node, _number(a.device.cuda_number), _number(a.device.nvml_number))
    yield (*names, f"{a.device.address.uuid}  {a.device.name}", *map(gib_text, sizes), room, load)
    for p in a.device.processes:
        used = "" if p.used_bytes is None else gib_text(p.used_bytes)
        who = fit_line(f"pid {p.pid} ({p.name or '?'}, user {p.user or '?'})")
        yield (node, "", "", f"  {who}", "", "", used, "", "", "")


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
