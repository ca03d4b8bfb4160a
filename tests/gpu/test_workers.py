"""What admission sees of a worker on a GPU, and what is left of it there. `make test-gpu`."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES, DeviceAccount, make_account
from automl.admission.accounting.ledger import DeviceLedgerPage
from automl.config import ObjectiveConfig, ObjectiveKind
from automl.devices.device_reader import take_reading
from automl.devices.device_reading import DeviceReader
from automl.execution.executor import TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.objectives.training_plan import SessionSetup
from automl.trial import (
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OutOfMemoryOutcome,
    Placement,
    ProcessEntry,
    TrialEvent,
    Verdict,
)
from tests.gpu.objectives import HELD_BYTES
from tests.models.conftest import make_plan, make_spec

pytestmark = pytest.mark.gpu

MIB = 2**20
GIB = 1024**3


def entry(function: str) -> ProcessEntry:
    objective = ObjectiveConfig(ObjectiveKind.python, f"tests.gpu.objectives:{function}")
    plan = make_plan(objective=objective)
    return ProcessEntry("automl.objectives.training_session:open_session", SessionSetup(plan))


def each(last_step: int, step: int) -> Sequence[int]:
    """Every report is one that may end its trial, so that the next waits for our answer to it."""
    return [step]


LIMITS = WorkerLimits(max_workers=1, judging=JudgedReports("val_loss", each))


def wait_until(holds: Callable[[], bool]) -> None:
    """A worker writes what it holds ten times a second."""
    deadline = time.monotonic() + 10.0
    while not holds():
        assert time.monotonic() < deadline


def test_what_a_worker_holds_is_its_own_while_it_trains_and_nobodys_after(
    tmp_path: Path, reader: DeviceReader, gpu: Placement
) -> None:
    executor = WorkersExecutor(entry("hold"), tmp_path, LIMITS)
    events: list[TrialEvent] = []
    during: list[DeviceAccount] = []

    def held() -> int:
        return sum(n for (where, _), n in executor.held_bytes().items() if not where.on_host)

    def read() -> DeviceAccount:
        reading = take_reading(reader, executor.held_bytes)
        device = next(d for d in reading.devices if d.address == gpu.devices[0])
        return make_account(device, reading, DeviceLedgerPage(), headroom_bytes=0)

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if any(isinstance(event, MetricsReported) and event.step == 0 for event in new):
            wait_until(lambda: held() >= HELD_BYTES)  # it waits for our answer meanwhile
            during.append(read())
        return {}

    before = read()
    try:
        feed = TrialFeed([make_spec(tmp_path, number=3)], lambda taken: None)
        executor.execute(feed, gpu, on_events)
        assert isinstance(events[-1], FinishedOutcome), events[-1]
        wait_until(lambda: held() < 64 * MIB)
        after = read()
    finally:
        executor.close()
    # Its context counts as held where NVML knows its pid, else as foreign.
    context = during[0].hold_bytes - HELD_BYTES + during[0].foreign_bytes - before.foreign_bytes
    assert during[0].hold_bytes >= HELD_BYTES
    assert 0 < context < CONTEXT_BOUND_BYTES
    assert after.room_bytes - during[0].room_bytes > 0.9 * HELD_BYTES
    assert abs(read().room_bytes - before.room_bytes) < 64 * MIB, "its context is gone with it"
    peaks = [event.peak_bytes for event in events if isinstance(event, MemoryPeakMeasured)]
    assert len(peaks) == 1
    assert HELD_BYTES <= peaks[0] < HELD_BYTES + 64 * MIB


def test_a_worker_takes_no_more_of_the_gpu_than_its_cap(tmp_path: Path, gpu: Placement) -> None:
    executor = WorkersExecutor(entry("take"), tmp_path, LIMITS)

    def ended(number: int, cap_bytes: int) -> TrialEvent:
        events: list[TrialEvent] = []

        def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            events.extend(new)
            return {}

        executor.cap_memory({number: {gpu.devices[0]: cap_bytes}})
        feed = TrialFeed([make_spec(tmp_path, {"gib": 2.0}, number)], lambda taken: None)
        executor.execute(feed, gpu, on_events)
        return events[-1]

    try:
        outcomes = [ended(number, cap) for number, cap in enumerate((3 * GIB, GIB, 0))]
    finally:
        executor.close()
    assert [type(outcome) for outcome in outcomes] == [
        FinishedOutcome,
        OutOfMemoryOutcome,
        FinishedOutcome,
    ]
