"""What a pool thread does with the events of its execution, whatever the executor does to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from automl.admission.accounting.ledger import Ledger, LedgerSnapshot
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import ExecutorCapabilities, InlineExecutor
from automl.execution.workers_executor import WorkersExecutor
from automl.record.event_log import EventLog, read_events
from automl.running.loop.messages import (
    LoopMessage,
    ReservationReleased,
    SweepFailed,
    TrialEnded,
    TrialMemoryMeasured,
)
from automl.running.sweep_view import seconds_per_step
from automl.running.trials.carrier import TrialCarrier
from automl.running.trials.program_peaks import ProgramPeaks
from automl.search.pruners.asha import PromotingHalving
from automl.search.pruners.median import MedianPruner
from automl.search.study import Study
from automl.trial import (
    LOCAL_NODE,
    CheckpointKind,
    CheckpointWritten,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OnEvents,
    PausedOutcome,
    Placement,
    ProcessEntry,
    ProcessHosted,
    RequestSource,
    ResourceRequest,
    StillRunning,
    TrialEvent,
    TrialSource,
    TrialSpec,
    TrialStarted,
    Verdict,
)
from tests.places import device_id, placed, process_id
from tests.search.conftest import Studies, ask, finish, report

GPU = placed("GPU-a", 5)
PROCESS = process_id(77)
KEY = 3
PREDICTED = ResourceRequest(5, RequestSource.LEARNED)
REPORT = MetricsReported(KEY, 1.0, 0, {"val_loss": 9.0})
FINISHED = FinishedOutcome(KEY, 2.0, 9.0)


class Scripted(InlineExecutor):
    """Gives these events one by one, or together, looks around after each, and may break at the
    end."""

    can = WorkersExecutor.can
    together = False

    def __init__(self, events: Sequence[TrialEvent], error: BaseException | None) -> None:
        super().__init__(ProcessEntry("none"), Path("unused"))
        self.events, self.error = events, error
        self.look: Callable[[], None] = lambda: None
        self.answers: list[Mapping[int, Verdict]] = []

    def execute(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        assert feed.next() is not None
        for events in [self.events] if self.together else [[event] for event in self.events]:
            self.answers.append(on_events(events))
            self.look()
        if self.error is not None:
            raise self.error


@dataclass
class Scene:
    """A study with three trials that ended well, and a fourth to be carried."""

    study: Study
    log_path: Path
    ledger: Ledger = field(default_factory=Ledger)
    messages: list[LoopMessage] = field(default_factory=list)

    def carry(
        self,
        *events: TrialEvent,
        error: BaseException | None = None,
        stopping: bool = False,
        ends_trials: bool = False,
        request: ResourceRequest = PREDICTED,
        can: ExecutorCapabilities = WorkersExecutor.can,
        program_peaks: ProgramPeaks | None = None,
        stored: CheckpointStore | None = None,
        together: bool = False,
        machine: str = LOCAL_NODE,
    ) -> Scripted:
        """Carry the trial through these events."""
        executor = Scripted(events, error)
        executor.can, executor.together = can, together

        def look() -> None:
            self.seen.append(self.ledger.snapshot())
            self.first.append(self.carrier.first.get(KEY))
            if program_peaks is not None:
                program_peaks.read(holding(2 ** (len(self.seen) - 1)))

        executor.look = look
        self.seen = [self.ledger.snapshot()]
        self.first: list[MetricsReported | None] = []
        """What was the first report of the execution, after each event."""
        with EventLog.open(self.log_path) as log:
            carrier = TrialCarrier(
                executor=executor,
                log=log,
                study=self.study,
                ledger=self.ledger,
                post=self.messages.append,
                program_peaks=program_peaks,
                stored=stored,
                machine=machine,
            )
            self.carrier = carrier
            if stopping:
                carrier.stopping.set()
            carrier.ends_trials = ends_trials
            self.ledger.reserve(KEY, GPU)
            spec = TrialSpec(KEY, {"lr": 0.1}, str(self.log_path.parent), 0)
            feed = carrier.open_feed(KEY, [spec], GPU)
            carrier.carry(KEY, feed, GPU, request)
        return executor

    @property
    def logged(self) -> list[type]:
        return [type(event) for event, _ in read_events(self.log_path)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with warnings.catch_warnings():  # opening a study sets filters for the whole process
        study = Studies(tmp_path).open(pruner=MedianPruner(n_warmup_steps=0, n_startup_trials=KEY))
        for number in range(KEY):
            assert ask(study).number == number
            for step in range(2):
                report(study, number, step, 1.0)
            finish(study, number)
        assert ask(study).number == KEY
        yield Scene(study, tmp_path / "events.log")
        study.close()


def test_events_are_logged_and_the_main_thread_hears_of_the_end(scene: Scene) -> None:
    scene.carry(ProcessHosted(KEY, 0.5, PROCESS), REPORT, FINISHED)
    assert scene.logged == [TrialStarted, MetricsReported, FinishedOutcome]
    assert scene.messages == [TrialEnded(FINISHED), ReservationReleased(KEY)]
    assert scene.carrier.latest == {}


@pytest.mark.parametrize("ends_trials", [True, False])
def test_a_trial_that_the_end_of_the_time_stops_ends_with_the_best_that_it_reported(
    scene: Scene, ends_trials: bool
) -> None:
    better = MetricsReported(KEY, 1.0, 0, {"val_loss": 0.5})
    worse = MetricsReported(KEY, 2.0, 1, {"val_loss": 0.75})
    stopped = InterruptedOutcome(KEY, 3.0, "the sweep stops")
    scene.carry(better, worse, stopped, stopping=True, ends_trials=ends_trials)
    ended = FinishedOutcome(KEY, 3.0, 0.5) if ends_trials else stopped
    assert scene.messages[0] == TrialEnded(ended)


def test_a_trial_without_a_report_or_whose_worker_died_goes_on_later(scene: Scene) -> None:
    stopped = InterruptedOutcome(KEY, 3.0, "the sweep stops")
    scene.carry(stopped, stopping=True, ends_trials=True)
    assert scene.messages[0] == TrialEnded(stopped)
    died = InterruptedOutcome(KEY, 3.0, "killed", by_worker_death=True)
    scene.carry(REPORT, died, stopping=True, ends_trials=True)
    assert TrialEnded(died) in scene.messages


@pytest.mark.parametrize("has_died", [False, True])
def test_a_trial_that_is_to_pause_stops_as_for_a_break_and_is_paused(
    tmp_path: Path, has_died: bool
) -> None:
    """A trial whose process died instead is tried again, as ever."""
    with warnings.catch_warnings():
        study = Studies(tmp_path).open(pruner=PromotingHalving(min_steps=1, factor=2, max_steps=9))
        while ask(study).number < KEY:
            pass
        scene = Scene(study, tmp_path / "events.log")
        stopped = InterruptedOutcome(KEY, 3.0, "the sweep stops", by_worker_death=has_died)
        executor = scene.carry(replace(REPORT, step=2), stopped)
        study.close()
    assert executor.answers[0] == {KEY: Verdict.STOP}
    expected = stopped if has_died else PausedOutcome(KEY, 3.0, 2)
    assert [event for event, _ in read_events(scene.log_path)][-1] == expected
    assert TrialEnded(expected) in scene.messages


def test_of_a_shared_study_the_log_says_on_which_machine_a_trial_ran(scene: Scene) -> None:
    scene.carry(FINISHED, machine="box-1")
    started, _ = next(iter(read_events(scene.log_path)))
    assert isinstance(started, TrialStarted)
    assert started.device == "x GPU-a of box-1"


def test_a_checkpoint_is_kept_elsewhere_before_it_is_logged(scene: Scene, tmp_path: Path) -> None:
    last = scene.log_path.with_name("last.pt")
    last.write_text("epoch 3")
    stored = CheckpointStore(f"file://{tmp_path}/bucket", "1234")
    written = CheckpointWritten(KEY, 1.0, 3, str(last), CheckpointKind.LAST)
    scene.carry(written, FINISHED, stored=stored)
    assert [path.read_text() for path in (tmp_path / "bucket").rglob("last.pt")] == ["epoch 3"]
    last.unlink()
    scene.log_path.unlink()
    gone = scene.carry(written, stored=stored)
    assert scene.logged == [TrialStarted]
    assert not gone.answers, "what is not there was not written"


def test_the_ledger_learns_process_context_and_peak(scene: Scene) -> None:
    peak = MemoryPeakMeasured(KEY, 1.5, 9)
    scene.carry(ProcessHosted(KEY, 0.5, PROCESS), REPORT, peak, FINISHED)
    _, hosted, reported, peaked, _ = scene.seen
    gpu = device_id("GPU-a")
    assert list(hosted.on(gpu).contexts) == [PROCESS]
    assert hosted.on(gpu).contexts[PROCESS].is_awaited
    assert not reported.on(gpu).contexts[PROCESS].is_awaited
    assert [r.peaks_bytes for r in peaked.reservations] == [(9,)]
    assert TrialMemoryMeasured(stamped(peak)) in scene.messages


def stamped(peak: MemoryPeakMeasured, request: ResourceRequest = PREDICTED) -> MemoryPeakMeasured:
    return replace(peak, predicted_bytes=request.memory_bytes, source=request.source)


def test_what_a_trial_that_goes_on_had_reported_is_no_report_of_this_execution(
    scene: Scene,
) -> None:
    """It tells it before it trains: its context may not be up, and its pace is another's."""
    scene.carry(REPORT, InterruptedOutcome(KEY, 2.0, "the sweep stops"))
    scene.ledger = Ledger()  # another sweep's
    new = replace(REPORT, time=9.0, step=1)
    scene.carry(ProcessHosted(KEY, 8.0, PROCESS), replace(REPORT, time=8.5), new, FINISHED)
    assert scene.first == [None, None, new, None]
    contexts = [seen.on(device_id("GPU-a")).contexts for seen in scene.seen[1:4]]
    assert [context[PROCESS].is_awaited for context in contexts] == [True, True, False]


def test_a_peak_is_logged_with_what_was_asked_for_and_why(scene: Scene) -> None:
    scene.carry(MemoryPeakMeasured(KEY, 1.5, 9, 1, 7), FINISHED)
    _, (peak, _), _ = read_events(scene.log_path)
    assert peak == MemoryPeakMeasured(KEY, 1.5, 9, 1, 7, 5, RequestSource.LEARNED)


@pytest.mark.parametrize(
    ("request_", "promised"),
    [
        (PREDICTED, [5, 4]),
        (ResourceRequest(None, RequestSource.UNKNOWN), [5, 4]),
        (ResourceRequest(5, RequestSource.DECLARED), [5, 5]),
        (ResourceRequest(5, RequestSource.RAN_OUT), [5, 5]),
        (ResourceRequest(None, RequestSource.LEARNED, alone=True), [5, 5]),
    ],
)
def test_a_prediction_settles_when_its_trial_was_seen(
    scene: Scene, request_: ResourceRequest, promised: list[int]
) -> None:
    """Before the main thread hears of it, which then looks who may start."""
    heard: list[int] = []
    scene.messages = Noticing(lambda: heard.extend(reserved(scene.ledger.snapshot())))
    scene.carry(
        REPORT, MemoryPeakMeasured(KEY, 1.5, 3), MemoryPeakMeasured(KEY, 1.6, 4), request=request_
    )
    _, reported, *settled = scene.seen
    assert [*reserved(reported), *reserved(settled[0])] == promised
    assert reserved(settled[1]) == promised[1:], "it settles once"
    assert heard[:1] == promised[1:]


def holding(size_bytes: int) -> DeviceReading:
    """A program that a worker has started is on the GPU."""
    program = DeviceProcess(78, size_bytes, started_by=PROCESS.pid)
    device = DeviceSnapshot(device_id("GPU-a"), "x", 99, 5, processes=(program,))
    return DeviceReading(0.0, (device,))


def test_a_program_is_measured_by_the_driver_from_its_worker_on_until_its_end(
    scene: Scene,
) -> None:
    """Its promise stays: nothing holds a program to less."""
    scene.carry(ProcessHosted(KEY, 0.5, PROCESS), REPORT, FINISHED, program_peaks=ProgramPeaks())
    assert scene.logged == [
        TrialStarted,
        MemoryPeakMeasured,
        MetricsReported,
        MemoryPeakMeasured,
        FinishedOutcome,
    ]
    kinds = [type(message) for message in scene.messages]
    assert kinds == [TrialMemoryMeasured, TrialMemoryMeasured, TrialEnded, ReservationReleased]
    assert [r.peaks_bytes for r in scene.seen[2].reservations] == [(2,)]
    assert reserved(scene.seen[2]) == [5]


def test_a_program_whose_execution_broke_is_measured_no_more(scene: Scene) -> None:
    peaks = ProgramPeaks()
    scene.carry(ProcessHosted(KEY, 0.5, PROCESS), error=RuntimeError("broke"), program_peaks=peaks)
    n_messages = len(scene.messages)
    peaks.read(holding(50))
    assert len(scene.messages) == n_messages


def test_who_asks_between_reports_is_answered_and_not_logged(scene: Scene) -> None:
    asking = StillRunning(KEY, 1.5)
    executor = scene.carry(ProcessHosted(KEY, 0.5, PROCESS), asking, FINISHED, stopping=True)
    assert executor.answers[1] == {KEY: Verdict.STOP}
    assert scene.logged == [TrialStarted, FinishedOutcome]


def test_threads_of_one_process_keep_their_promises(scene: Scene) -> None:
    """No thread could be capped by itself."""
    scene.carry(MemoryPeakMeasured(KEY, 1.5, 3), FINISHED, can=InlineExecutor.can)
    assert reserved(scene.seen[2]) == [5]


def test_what_holds_nothing_that_is_seen_keeps_its_promise(scene: Scene) -> None:
    scene.carry(MemoryPeakMeasured(KEY, 1.5, 0), FINISHED)
    assert reserved(scene.seen[2]) == [5]


def reserved(ledger: LedgerSnapshot) -> list[int]:
    return [r.placement.shares[0].reservation_bytes for r in ledger.reservations]


def test_whatever_breaks_the_reservation_comes_back_before_it_is_said(scene: Scene) -> None:
    error = RuntimeError("broke")
    held: list[int] = []
    scene.messages = Noticing(lambda: held.append(len(scene.ledger.snapshot().reservations)))
    scene.carry(REPORT, error=error)
    assert list(scene.messages) == [SweepFailed(error), ReservationReleased(KEY)]
    assert held == [0, 0]


class Noticing(list[LoopMessage]):
    """Looks around when something is posted."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self.look = look

    def append(self, message: LoopMessage) -> None:
        super().append(message)
        self.look()


def test_the_studys_verdict_travels_back(scene: Scene) -> None:
    assert scene.carry(REPORT).answers == [{KEY: Verdict.PRUNE}]


def test_a_report_that_comes_with_its_trials_end_is_judged_before_it(scene: Scene) -> None:
    """The main thread tells the study of an end at once."""

    def tell() -> None:
        if isinstance(scene.messages[-1], TrialEnded):
            scene.study.tell(KEY, FINISHED)

    scene.messages = Noticing(tell)
    assert scene.carry(REPORT, FINISHED, together=True).answers == [{KEY: Verdict.PRUNE}]
    assert list(scene.messages) == [TrialEnded(FINISHED), ReservationReleased(KEY)]


def test_while_the_sweep_stops_a_trial_that_is_pruned_is_told_so(scene: Scene) -> None:
    good = MetricsReported(KEY, 1.0, 0, {"other": 1.0})
    worse = MetricsReported(KEY, 1.5, 1, {"val_loss": 9.0})
    executor = scene.carry(ProcessHosted(KEY, 0.5, PROCESS), good, worse, stopping=True)
    assert executor.answers == [{KEY: Verdict.STOP}, {KEY: Verdict.STOP}, {KEY: Verdict.PRUNE}]


def test_a_feed_records_the_begin_of_a_trial_that_is_taken(scene: Scene) -> None:
    scene.carry(FINISHED)
    (started, _), *_ = read_events(scene.log_path)
    assert started == TrialStarted(KEY, started.time, {"lr": 0.1}, "x GPU-a")


def test_the_pace_is_told_between_the_first_report_of_this_execution_and_the_last(
    scene: Scene,
) -> None:
    """The execution went on from a checkpoint, at step 40."""
    first = MetricsReported(KEY, 10.0, 40, {"val_loss": 0.5})
    assert seconds_per_step(first, replace(first, time=16.0, step=43)) == 2.0
    assert seconds_per_step(first, first) is None
    assert seconds_per_step(None, None) is None
    scene.carry(
        ProcessHosted(KEY, 0.5, PROCESS), REPORT, replace(REPORT, step=REPORT.step + 1), FINISHED
    )
    assert scene.carrier.first == {}
