"""`devices watch=true`: every device, the trials on it, who else is there, and the queues.

Memory is read here, with `execution=ray` on every node; what of it is ours, and what waits, is read
from the pictures that the sweeps in `study.dir` write to their `status.json`. In a terminal until
Ctrl-C, else once.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from automl.admission.account import account
from automl.admission.ledger import Page
from automl.config import Config, ExecutionKind
from automl.config.ray import LOCAL
from automl.devices.device import DeviceReader, Reading
from automl.devices.nodes import NodesReader
from automl.devices.promises import open_promises
from automl.devices.reader import FIRST_SECONDS, LookElsewhere, ReaderThread, open_reader
from automl.errors import AutoMLError
from automl.record.directory import is_held
from automl.record.files import StudyFiles
from automl.record.studies import study_names
from automl.running.console import open_console
from automl.running.device_rows import device_row
from automl.running.view import SweepView, load_view
from automl.running.watching import (
    OLD_SECONDS,
    Seen,
    Watched,
    of_machine,
    show_once,
    show_until_stopped,
)

SHOWN_SECONDS = 1.0
"""From one picture to the next; a sweep writes its own as often."""


def watch(config: Config) -> int:
    """Show them. Raises AutoMLError where they cannot be read at all."""
    console = open_console()
    with _source(config) as source, _readings(source, config) as readings:
        seen = until_lost(_seen(readings, config), source.lost)
        if not console.is_terminal:
            show_once(console, next(seen))
            return 0
        with _ended_by_sigterm():
            show_until_stopped(console, seen, lambda: time.sleep(SHOWN_SECONDS))
    return 0


def on_cluster(config: Config) -> bool:
    """Whether the devices are those of a cluster's nodes; one of a sweep's own has this machine's
    alone."""
    return config.execution.kind is ExecutionKind.ray and config.ray.address != LOCAL


@dataclass(frozen=True)
class _Source:
    """What is read."""

    reader: DeviceReader
    elsewhere: LookElsewhere | None = None
    lost: Callable[[], AutoMLError | None] = lambda: None
    """Why nothing can be read there any more; None: it can."""


@contextlib.contextmanager
def _source(config: Config) -> Iterator[_Source]:
    if on_cluster(config):
        from automl.running.looking import open_nodes  # with all that speaks to nodes
        from automl.running.machines import readings

        with open_nodes(config) as nodes:
            cluster = NodesReader(lambda: sorted(readings(nodes), key=lambda of: of.node))
            yield _Source(cluster, lost=nodes.lost)
        return
    with (
        contextlib.closing(open_reader(config.devices)) as reader,
        contextlib.closing(open_promises(reader.addresses)) as promises,
    ):
        yield _Source(reader, promises.others)


@contextlib.contextmanager
def _readings(source: _Source, config: Config) -> Iterator[queue.SimpleQueue[Reading]]:
    """As they come: a thread takes them, so that Ctrl-C is heard while the driver hangs."""
    found: queue.SimpleQueue[Reading] = queue.SimpleQueue()
    interval_seconds = config.devices.interval_seconds
    thread = ReaderThread(source.reader, interval_seconds, dict, found.put, source.elsewhere)
    thread.start()
    try:
        yield found
    finally:
        thread.stop()


def until_lost(
    seen: Iterator[Watched], lost: Callable[[], AutoMLError | None]
) -> Iterator[Watched]:
    """The same, while there is anything to be read. Raises what `lost` says."""
    for watched in seen:
        if (error := lost()) is not None:
            raise error
        yield watched


def _seen(readings: queue.SimpleQueue[Reading], config: Config) -> Iterator[Watched]:
    try:
        last = newest = readings.get(timeout=FIRST_SECONDS)
    except queue.Empty:
        raise AutoMLError(
            f"the devices have not answered for {FIRST_SECONDS:g} s; does nvidia-smi answer?"
        ) from None
    if last.error is not None:
        raise AutoMLError(f"the devices cannot be read: {last.error}")
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                newest = readings.get_nowait()
                last = last if newest.error is not None else newest
        yield _watched(last, newest.error, config)


def _watched(reading: Reading, error: str | None, config: Config) -> Watched:
    headroom = config.admission.headroom_bytes
    devices = [
        Seen(device_row(account(d, reading, Page(), headroom), reading), d.processes)
        for d in reading.devices
    ]
    age, trouble = time.monotonic() - reading.begun_seconds, None
    if error is not None:
        trouble = f"the devices cannot be read now: {error}"
    elif age > OLD_SECONDS:
        trouble = f"the devices have not answered for {age:.0f} s"
    folder, here = config.study.dir, socket.gethostname()
    sweeps = living_sweeps(Path(folder))
    if not on_cluster(config):  # whose nodes are named here as there
        sweeps = [of_machine(sweep, here) for sweep in sweeps]
    return Watched(time.time(), devices, sweeps, folder, trouble)


def living_sweeps(folder: Path) -> list[SweepView]:
    """What the sweeps show that are at work on a study of the folder, by name. One that may not be
    looked into, or has shown nothing yet, is left out."""
    found = []
    for name in sorted(study_names(folder)):
        with contextlib.suppress(OSError, ValueError):
            if is_held(folder / name):
                view = load_view(StudyFiles(folder / name).status)
                if view.ended is None:
                    found.append(view)
    return found


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Not before the terminal has its cursor back."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
