"""Times every way of every size on every device, each size in a process of its own, bounded by
time. What takes too long is told as that."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from automl.errors import AutoMLError, ConfigError
from automl.execution.confinement import Confinement
from automl.execution.remote import stream_confined
from automl.record.texts import fit_line
from automl.running.gain.sizes import Size
from automl.running.survey import throwaway
from automl.training.gain.words import GainSetup, Timing, Way
from automl.training.plan import SessionSetup
from automl.trial import HOST, DeviceId, Entry, Placement, Share

TOTAL_SECONDS = 45.0
"""For all timing; what is loaded before takes some seconds more."""
WAY_SECONDS = 1.5
"""For one way, at the most: longer looks say no more."""
USERS_WAY_SECONDS = 6.0
"""The same of a user's function, which may read its data first."""
_SHARE = 0.7
"""Of the time that a process has, what it is told: a step may take long."""
_NO_LIMIT = 2**50
_TARGET = "automl.training.gain.child:time_ways"


@dataclass(frozen=True)
class Device:
    """What is timed; `name` for people."""

    address: DeviceId
    name: str

    @property
    def on_host(self) -> bool:
        return self.address.on_host


HOST_DEVICE = Device(HOST, "cpu")


@dataclass(frozen=True)
class Task:
    """One size on one device, in the ways that are to be timed."""

    device: Device
    size: Size
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Row:
    """What came of one way."""

    device: Device
    size: Size
    timing: Timing


def measure(
    setup: SessionSetup,
    tasks: Sequence[Task],
    say: Callable[[str], None],
    *,
    total_seconds: float = TOTAL_SECONDS,
    way_seconds: float = WAY_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """A row for each way of each task, in their order. Takes about `total_seconds` at the most, and
    ends at once where `is_over`, which is asked ten times a second.

    Raises ConfigError where a user's function cannot be had. Nothing is left behind.
    """
    ends = time.monotonic() + total_seconds
    rows: list[Row] = []
    for n, task in enumerate(tasks):
        say(f"timing {task.size.name} on {task.device.name} ({n + 1} of {len(tasks)})")
        seconds = max(0.0, ends - time.monotonic()) / (len(tasks) - n)
        timings = _timings(setup, task, seconds, way_seconds, is_over)
        rows += [Row(task.device, task.size, timing) for timing in timings]
    return rows


def _timings(
    setup: SessionSetup,
    task: Task,
    seconds: float,
    way_seconds: float,
    is_over: Callable[[], bool],
) -> Sequence[Timing]:
    """One for each way; the process is ended after `seconds`, with what is known by then."""
    ends = time.monotonic() + seconds
    late = f"no two steps within {seconds:.0f} s"
    found = {way: Timing(way, trouble=late) for way in task.ways}
    with tempfile.TemporaryDirectory(prefix="automl-gain-", ignore_cleanup_errors=True) as folder:
        for_child = min(_SHARE * seconds, way_seconds * len(task.ways))
        placement = Placement((Share(task.device.address, task.device.name, 0),))
        there = GainSetup(setup, task.size.params, task.ways, placement, for_child, folder)
        limits = _limits(task.device, folder, seconds)
        stream = stream_confined(
            Entry(_TARGET, there), limits, lambda: time.monotonic() > ends or is_over()
        )
        with closing(stream):
            try:
                for timing in stream:
                    assert isinstance(timing, Timing)
                    found[timing.way] = timing
            except ConfigError:
                raise
            except AutoMLError as error:
                if time.monotonic() <= ends and not is_over():
                    found = {way: _after(timing, str(error)) for way, timing in found.items()}
    return [found[way] for way in task.ways]


def _after(timing: Timing, error: str) -> Timing:
    """What is known of a way once its process has ended with an error."""
    if timing.step_seconds is not None:
        return timing
    return Timing(timing.way, trouble=fit_line(error, 200))


def _limits(device: Device, folder: str, seconds: float) -> Confinement:
    """It may take what a trial may take, and at the same priority."""
    visible = "" if device.on_host else device.address.uuid
    return Confinement(
        seconds=seconds,
        memory_bytes=_NO_LIMIT,
        file_bytes=_NO_LIMIT,
        niceness=0,
        environment={"AUTOML_GAIN": "1", "CUDA_VISIBLE_DEVICES": visible, **throwaway(folder)},
    )
