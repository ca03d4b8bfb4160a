"""When a trial's peak is told, and what it is on the host of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.memory_peaks import (
    DeviceMemoryPeak,
    MemoryPeakMeter,
    PeakReporter,
    largest_peak,
)
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import TrialContext
from automl.trial import (
    Direction,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OnEvents,
    ProcessEntry,
)
from tests.models.conftest import Listener, make_plan, make_spec
from tests.places import ON_HOST

MIB = 1024**2


@dataclass
class Process:
    """Holds more and more; a second passes at each look at the clock."""

    held: int | None = 100
    now: float = 0.0
    n_looks: int = 0
    step_seconds: float = 1.0

    def get_peak(self) -> DeviceMemoryPeak | None:
        self.n_looks += 1
        return None if self.held is None else DeviceMemoryPeak(self.held, self.held // 2)

    def clock(self) -> float:
        self.now += self.step_seconds
        return self.now


@dataclass
class Trial:
    """A trial that reports, in a process."""

    folder: Path
    process: Process = field(default_factory=Process)

    def __post_init__(self) -> None:
        self.listener = Listener()
        self.peak_reporter = PeakReporter(self.process.get_peak, self.process.clock)
        spec, goal = make_spec(self.folder), StudyGoal("val_loss", Direction.minimize)
        record = TrialReports(spec, goal, self.listener, 0.0, peak_reporter=self.peak_reporter)
        self.context = TrialContext(spec, devices=("cpu",), seed=1, record=record)

    @property
    def told(self) -> list[int]:
        return [e.peak_bytes for e in self.listener.events if isinstance(e, MemoryPeakMeasured)]


def test_it_is_told_with_the_first_report_of_the_metric_and_where_it_grew(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.context.report(0, {"train_loss": 1.0})
    assert trial.told == []
    for step, held in enumerate([100, 104, 105, 106, 112], 1):
        trial.process.held = held
        trial.context.report(step, {"val_loss": 1.0})
    assert trial.told == [100, 106, 112]
    first = next(e for e in trial.listener.events if isinstance(e, MemoryPeakMeasured))
    assert (first.n_lanes, first.allocated_bytes) == (1, 50)
    assert [e.peak_bytes for e in trial.peak_reporter.last(0)] == [], "nothing new at the end"
    trial.process.held = 113
    assert [e.peak_bytes for e in trial.peak_reporter.last(0)] == [113]


def test_reports_in_quick_succession_are_not_made_dearer(tmp_path: Path) -> None:
    trial = Trial(tmp_path, Process(step_seconds=0.001))
    for step in range(250):
        trial.context.report(step, {"val_loss": 1.0})
    assert trial.process.n_looks == 3


def test_what_cannot_be_measured_is_not_told(tmp_path: Path) -> None:
    trial = Trial(tmp_path, Process(held=None))
    trial.context.report(0, {"val_loss": 1.0})
    assert trial.told == []


def test_reports_of_before_an_interruption_say_nothing_of_memory(tmp_path: Path) -> None:
    Trial(tmp_path).context.report(0, {"val_loss": 1.0}, lambda: {})
    again = Trial(tmp_path)
    assert again.context.restore() == {}
    assert again.listener.reports
    assert again.told == []


def test_a_process_that_is_no_worker_measures_nothing() -> None:
    """As inline, where the sweep itself takes memory meanwhile."""
    with MemoryPeakMeter().watching(("cpu",), on_host=True) as get_peak:
        assert get_peak() is None


def train(trial: TrialContext) -> None:
    block = b"x" * (int(str(trial.params["mib"])) * MIB)
    trial.report(0, {"val_loss": float(len(block))})
    del block
    for step in range(1, 4):
        trial.report(step, {"val_loss": 1.0})


def open_session(config: object) -> object:
    from automl.objectives.training_session import TrainingSession

    return TrainingSession(make_plan(), train)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[WorkersExecutor]:
    entry = ProcessEntry("tests.in_trial.test_peaks:open_session")
    executor = WorkersExecutor(entry, tmp_path, WorkerLimits(1))
    yield executor
    executor.close()


def test_the_host_shows_each_trials_own_peak(tmp_path: Path, executor: WorkersExecutor) -> None:
    """Of a worker that carries a large trial, then a small one."""
    peaks: list[int] = []
    for number, mib in enumerate((300, 50)):
        listener = Listener()
        spec = make_spec(tmp_path, {"mib": mib}, number)
        executor.execute(TrialFeed([spec], lambda spec: None), ON_HOST, on_events(listener))
        told = [e for e in listener.events if isinstance(e, MemoryPeakMeasured)]
        first_report = next(
            i for i, e in enumerate(listener.events) if isinstance(e, MetricsReported)
        )
        assert isinstance(listener.events[first_report + 1], MemoryPeakMeasured)
        assert isinstance(listener.outcome, FinishedOutcome)
        peaks.append(told[-1].peak_bytes)
    assert peaks[0] - peaks[1] > 200 * MIB
    assert 50 * MIB < peaks[1] < 50 * MIB + 400 * MIB, "less what the fork brought"


def on_events(listener: Listener) -> OnEvents:
    return lambda events: {event.trial: listener(event) for event in events}


def test_of_several_devices_each_has_its_peak_and_any_that_grew_is_told() -> None:
    held = [DeviceMemoryPeak(100, 50), DeviceMemoryPeak(80, 70)]
    peak_reporter = PeakReporter(lambda: largest_peak(held))
    (first,) = peak_reporter.grown(0)
    assert (first.peak_bytes, first.allocated_bytes, first.by_device) == (100, 50, (100, 80))
    held[1] = DeviceMemoryPeak(90, 70)
    (second,) = peak_reporter.last(0)
    assert (second.peak_bytes, second.by_device) == (100, (100, 90))
    assert [*peak_reporter.last(0)] == []
