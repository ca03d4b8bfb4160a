"""How workers end: by the kernel, by the sweep, with their parent, and who takes their place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil
import pytest

from automl.execution.executor import TrialFeed
from automl.execution.supervision import ExecutionSupervisor
from automl.execution.worker_messages import SharedNumbers, WorkerReady, WorkerSetup
from automl.execution.worker_process import WorkerLimits, WorkerProcess
from automl.execution.workers_executor import WorkersExecutor
from automl.record.lease import lease_seconds
from automl.trial import (
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    OutOfMemoryOutcome,
    ProcessHosted,
    ProcessId,
    TrialEvent,
    TrialOutcome,
    Verdict,
)
from tests.execution.supervised import ENTRY, HOST, execute, outcomes, spec, wait_until
from tests.processes import is_running


@pytest.mark.parametrize(
    ("counts", "act", "outcome", "how"),
    [
        ((3, 4), "die", OutOfMemoryOutcome, "SIGKILL by the kernel, for lack of main memory"),
        ((3, 3), "die", InterruptedOutcome, "SIGKILL"),
        ((None, None), "die", InterruptedOutcome, "SIGKILL"),
        ((3, 4), "abort", InterruptedOutcome, "SIGABRT"),
    ],
)
def test_a_process_that_the_kernel_killed_for_memory_ran_out_of_it(
    tmp_path: Path, counts: tuple[int | None, int], act: str, outcome: type[TrialOutcome], how: str
) -> None:
    """Only where the kernel says so: anybody may send a SIGKILL."""
    asked = iter(counts)
    last = counts[-1]
    limits = WorkerLimits(max_workers=1, n_oom_kills=lambda: next(asked, last))
    died = execute(tmp_path, [spec(0, act)], limits)[-1]
    assert isinstance(died, outcome)
    assert isinstance(died, OutOfMemoryOutcome | InterruptedOutcome)
    assert died.cause == f"its process died: {how}"
    assert getattr(died, "by_worker_death", False) == (outcome is InterruptedOutcome)


@pytest.mark.parametrize(
    ("act", "count", "outcome"),
    [
        ("lose_program", 4, OutOfMemoryOutcome),
        ("lose_program", 3, InterruptedOutcome),
        ("lose_gpu", 4, InterruptedOutcome),
    ],
)
def test_a_program_of_a_worker_that_the_kernel_killed_ran_out_of_memory(
    tmp_path: Path, act: str, count: int, outcome: type[TrialOutcome]
) -> None:
    """A GPU that fails while the kernel kills somebody else's process has not."""
    asked = iter([3])
    limits = WorkerLimits(max_workers=1, n_oom_kills=lambda: next(asked, count))
    assert isinstance(execute(tmp_path, [spec(0, act)], limits)[-1], outcome)


def test_a_worker_whose_gpu_failed_is_not_used_again(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    pids: list[int] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process.pid for event in new if isinstance(event, ProcessHosted))
        return {}

    for number, act in enumerate(["lose_gpu", "finish", "finish"]):
        executor.execute(TrialFeed([spec(number, act)], lambda taken: None), HOST, on_events)
    executor.close()
    assert pids[0] != pids[1] == pids[2]


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("break_after", "RuntimeError: the driver is gone"),
        ("hang_after", "did not become idle within 0.5 s"),
    ],
)
def test_a_worker_that_fails_between_trials_is_not_waited_for(
    tmp_path: Path, act: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = WorkerLimits(max_workers=1, idle_patience_seconds=0.5)
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    def run() -> None:
        for number, what in enumerate([act, "finish"]):
            executor.execute(TrialFeed([spec(number, what)], lambda taken: None), HOST, on_events)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10.0)
    hangs = thread.is_alive()
    executor.kill("the test is over")
    thread.join()
    assert not hangs
    executor.close()
    assert [type(outcome) for outcome in outcomes(events).values()] == [
        FinishedOutcome,
        FinishedOutcome,
    ]
    pids = [event.process.pid for event in events if isinstance(event, ProcessHosted)]
    assert pids[0] != pids[1]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"worker {pids[0]} ")
    assert told in said


def test_workers_end_with_their_lease_and_it_is_nobodys_fault(tmp_path: Path) -> None:
    """One that trains says why, though the lease was renewed by the time that this is seen; one
    that is idle is not taken for the next trial."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=2))
    pids: list[int] = []
    ends: list[TrialOutcome] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process.pid for event in new if isinstance(event, ProcessHosted))
        ends.extend(event for event in new if isinstance(event, TrialOutcome))
        return {}

    def run(number: int, act: str) -> None:
        executor.execute(TrialFeed([spec(number, act)], lambda taken: None), HOST, on_events)

    trains = threading.Thread(target=run, args=(0, "hang"))
    trains.start()
    assert wait_until(lambda: len(pids) == 1, 10.0)
    run(1, "finish")
    assert len(executor.idle()) == 1
    executor.lease(lease_seconds() - 1.0)
    assert wait_until(lambda: not any(map(is_running, pids)), 10.0)
    trains.join()

    def is_dropped() -> bool:
        """As soon as the fork server has said that it died."""
        executor.lease(lease_seconds() - 1.0)
        executor.lease(lease_seconds() + 60.0)
        return executor.idle() == {}

    assert wait_until(is_dropped, 10.0)
    run(2, "finish")
    executor.close()
    assert [type(end) for end in ends] == [FinishedOutcome, InterruptedOutcome, FinishedOutcome]
    lost = ends[1]
    assert isinstance(lost, InterruptedOutcome)
    assert lost.lease_ended
    assert not lost.by_worker_death


def test_a_worker_is_replaced_after_so_many_trials(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, recycle_after_trials=2))
    pids: list[ProcessId] = []

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process for event in events if isinstance(event, ProcessHosted))
        return {}

    for number in range(4):
        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)
    executor.close()
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_idle_workers_that_are_ended_leave_room_for_others(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    pids: list[ProcessId] = []

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process for event in events if isinstance(event, ProcessHosted))
        return {}

    for number in range(2):
        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)
        executor.end_idle(HOST.devices)
        assert not is_running(pids[number].pid)
        assert executor.held_bytes() == {}
    executor.close()


def test_a_trial_that_is_being_started_while_all_are_killed_ends_with_them(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    executor.kill("too late")
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, on_events)
    executor.close()
    assert isinstance(events[-1], InterruptedOutcome)
    assert events[-1].cause == "too late"


def test_killing_ends_a_running_trial(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], ProcessHosted):
            executor.kill("too late")
        return {}

    executor.execute(TrialFeed([spec(0, "hang")], lambda taken: None), HOST, on_events)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, InterruptedOutcome)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


def test_killing_ends_a_trial_that_is_just_beginning(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=5)  # in which it would have failed
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor.kill("too late")
    executor.execute(TrialFeed([spec(0, "hang")], lambda taken: None), HOST, on_events)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, InterruptedOutcome)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="by a watching thread elsewhere")
@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_nothing_outlives_a_parent_that_was_killed(
    tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    output = tmp_path / "trial-00000.log"
    assert wait_until(lambda: output.exists() and output.stat().st_size > 0, 60), "never started"
    pids = [int(word) for word in output.read_text().split()]
    assert len(pids) == 4, "the worker, its child, and two with sessions and files of their own"
    assert all(map(is_running, pids))
    kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not any(map(is_running, pids)), 5.0)


def test_workers_end_with_their_fork_server_before_others_get_their_trials(tmp_path: Path) -> None:
    """One that is idle, too, though nobody asks for it."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=2))
    pids: dict[int, int] = {}
    alive_at_end: list[bool] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        for event in new:
            if isinstance(event, ProcessHosted):
                pids[event.trial] = event.process.pid
            alive_at_end.extend([is_running(pids[0])] * isinstance(event, InterruptedOutcome))
        return {}

    def run(number: int, act: str) -> None:
        executor.execute(TrialFeed([spec(number, act)], lambda taken: None), HOST, on_events)

    hangs = threading.Thread(target=run, args=(0, "hang"))
    hangs.start()
    try:
        assert wait_until(lambda: bool(pids), 10.0)
        run(1, "finish")
        os.kill(psutil.Process(pids[1]).ppid(), signal.SIGKILL)
        hangs.join(10.0)
        assert wait_until(lambda: not is_running(pids[1]), 3.0)
    finally:
        executor.kill("the test is over")
        hangs.join()
        executor.close()
    assert alive_at_end == [False]


class WorkerThatEnds:
    """A worker whose last report comes, and which ends, while it is waited for."""

    def __init__(self) -> None:
        self.pipe, self._own = Pipe()
        self.numbers, self.pid = SharedNumbers(1), 1

    def begin(self, work: object) -> None:
        self._own.send(WorkerReady())

    def wait(self, seconds: float) -> bool:
        if not self._own.closed:
            self._own.send([MetricsReported(0, 1.0, 3, {"loss": 0.5})])
            self._own.close()
        return True

    def answer(self, verdicts: object, *, waits: bool) -> None: ...

    def how_it_died(self) -> str:
        return "exit status 3"


def test_what_a_worker_sent_before_its_end_counts(tmp_path: Path) -> None:
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    worker: Any = WorkerThatEnds()
    feed, limits = TrialFeed([spec(0)], lambda taken: None), WorkerLimits(max_workers=1)
    first = feed.next()
    assert first is not None
    (output := tmp_path / "trial-00000.log").touch()
    ExecutionSupervisor(worker, feed, on_events, on_events, limits, pytest.fail).run(
        first, HOST, output
    )
    assert [type(event) for event in events] == [MetricsReported, InterruptedOutcome]


def test_many_threads_send_to_a_worker() -> None:
    """A large message is written in two parts."""
    worker = WorkerProcess(WorkerSetup(ENTRY, HOST.devices, SharedNumbers(1), None))
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(worker.stop, [range(40_000)] * 40))
        assert worker.numbers.counters.n_sent == 40
        worker.dismiss()
        worker.process.join(60)
        assert worker.process.exitcode == 0
    finally:
        worker.end()


_PARENT = """
import sys
from pathlib import Path
from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits, preload_fork_server
from automl.execution.workers_executor import WorkersExecutor
from tests.execution.supervised import ENTRY, HOST, spec
if __name__ == "__main__":
    preload_fork_server()
    executor = WorkersExecutor(ENTRY, Path(sys.argv[1]), WorkerLimits(max_workers=1))
    feed = TrialFeed([spec(0, "fork_and_hang")], lambda taken: None)
    executor.execute(feed, HOST, lambda events: {})
"""
