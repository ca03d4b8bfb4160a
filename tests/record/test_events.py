"""The event log: nothing lost, nothing twice, whole lines only, in their order."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.record.event_log import (
    EventLog,
    UnreadableLineError,
    decode_event,
    encode_event,
    read_events,
)
from automl.record.study_record import record_from_events
from automl.tracking.deliver.confirmed_offset import LineCounter
from automl.trial import (
    Event,
    FailedOutcome,
    LoggedPoint,
    MemoryPeakMeasured,
    MetricsReported,
    OutOfMemoryOutcome,
    SweepStarted,
    TrialTagged,
    ValuesLogged,
)
from tests.record.every_event import EVENTS, events_of
from tests.tracking.scenes import begin, finish, interrupt, report, sweep_started, trial


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_back_as_it_was(event: Event) -> None:
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event


def test_a_peak_of_an_earlier_version_is_read() -> None:
    line = b'{"event": "MemoryPeak", "trial": 3, "time": 2.5, "peak_bytes": 7}'
    assert decode_event(line) == MemoryPeakMeasured(3, 2.5, 7)


def test_nan_is_read_back() -> None:
    event = decode_event(encode_event(MetricsReported(0, 1.0, step=0, metrics={"loss": math.nan})))
    assert isinstance(event, MetricsReported)
    assert math.isnan(event.metrics["loss"])


def test_no_credential_is_written(path: Path) -> None:
    url, key = "postgresql://ann:s3cret@db/x", "tracking.token"
    with EventLog.open(path) as log:
        log.append(SweepStarted(0.0, "s", "u", {"study.storage": url, key: "s3cret"}))
        log.append(FailedOutcome(0, 1.0, cause=f"cannot reach {url}", details=f"at {url}"))
        log.append(OutOfMemoryOutcome(1, 1.0, cause=url))
        log.append(TrialTagged(2, 1.0, "db", url))
        log.append(TrialTagged(2, 1.0, "hub_token", "s3cret"))
        log.append(ValuesLogged(2, 1.0, params={"api_key": "s3cret", "where": url}))
    assert "s3cret" not in path.read_text()


def test_offsets_lead_from_event_to_event(path: Path) -> None:
    with EventLog.open(path) as log:
        for event in EVENTS:
            log.append(event)
    offsets = [0, *(offset for _, offset in read_events(path))]
    for n, offset in enumerate(offsets):
        assert [event for event, _ in read_events(path, offset)] == EVENTS[n:]


def test_of_a_step_each_metric_is_logged_once(path: Path) -> None:
    parts = [{"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0}, {"c": 5.0}]
    with EventLog.open(path) as log:
        log.append(MetricsReported(0, 1.0, 6, {"a": 1.0}))
        told = [log.append(MetricsReported(0, 1.0, 7, part)) for part in parts]
        assert not log.append(MetricsReported(0, 1.0, 6, {"a": 1.0})), "of an earlier step"
    assert told == [True, True, False, True]
    assert [e.metrics for e in events_of(path) if isinstance(e, MetricsReported)] == [
        *({"a": 1.0}, {"a": 1.0}, {"b": 3.0}, {"c": 5.0})
    ]
    with EventLog.open(path) as log:  # after a kill the trial tells them again, as one report
        assert not log.append(MetricsReported(0, 2.0, 7, {"a": 1.0, "b": 3.0, "c": 5.0}))
        assert log.append(MetricsReported(0, 2.0, 7, {"c": 5.0, "d": 6.0}))
    record = record_from_events(events_of(path), keep_reports=True).trials[0]
    assert record.reports == {6: {"a": 1.0}, 7: {"a": 1.0, "b": 3.0, "c": 5.0, "d": 6.0}}
    assert record.n_reports == 2


def test_a_metric_that_is_logged_elsewhere_is_told_once_of_a_step(path: Path) -> None:
    a, b, later = LoggedPoint("a", 1.0, 0, 17), LoggedPoint("b", 2.0, 0, 17), 9.0
    with EventLog.open(path) as log:
        assert log.append(ValuesLogged(0, 1.0, (a,), {"p": "1"}))
        assert log.append(ValuesLogged(0, 1.0, (a._replace(value=later), b), {"p": "2", "q": "3"}))
        assert not log.append(ValuesLogged(0, 1.0, (a, b), {"q": "3"}))
        assert not log.append(MetricsReported(0, 1.0, 0, {"a": 5.0})), (
            "it is one metric, however told"
        )
        assert log.append(ValuesLogged(1, 1.0, (a,), {"p": "1"})), "of another trial"
    with EventLog.open(path) as log:  # a resumed trial logs it all again
        assert not log.append(ValuesLogged(0, 2.0, (a, b), {"p": "1", "q": "3"}))
        assert log.append(ValuesLogged(0, 2.0, (a, a._replace(step=1))))
    told = [e for e in events_of(path) if isinstance(e, ValuesLogged) and e.trial == 0]
    assert [e.points for e in told] == [(a,), (b,), (a._replace(step=1),)]
    assert [dict(e.params) for e in told] == [{"p": "1"}, {"q": "3"}, {}]
    record = record_from_events(events_of(path), keep_reports=True).trials[0]
    assert record.reports == {0: {"a": 1.0, "b": 2.0}, 1: {"a": 1.0}}
    assert (record.n_reports, record.last_step) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        '"points": [["a", 1.0, 0]]',
        '"points": [["a", "1", 0, 17]]',
        '"points": [[1, 1.0, 0, 17]]',
        '"points": [["a", 1.0, 0.5, 17]]',
        '"points": 7',
        '"params": {"a": 1}',
    ],
)
def test_what_a_stranger_wrote_of_a_logged_metric_is_no_event(fields: str) -> None:
    with pytest.raises(UnreadableLineError):
        decode_event(f'{{"event": "Logged", "trial": 3, "time": 2.5, {fields}}}'.encode())


def test_a_tag_is_logged_when_it_changes(path: Path) -> None:
    tags = [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2")]
    for told in ([True, False, True, True], [True, False, False, True]):  # a resumed trial's, too
        with EventLog.open(path) as log:
            assert [log.append(TrialTagged(0, 1.0, *tag)) for tag in tags] == told
    assert record_from_events(events_of(path)).trials[0].tags == {"a": "2", "b": "1"}


def test_a_step_is_logged_once(path: Path) -> None:
    with EventLog.open(path) as log:
        assert log.append(begin(0))
        assert log.append(report(0, 0))
        assert not log.append(report(0, 0))
        assert log.append(report(1, 0))
        log.append(interrupt(0))
    with EventLog.open(path) as log:
        assert not log.append(report(0, 0))
        assert log.append(report(0, 1))
    assert events_of(path).count(report(0, 0)) == 1


def test_nothing_follows_the_end_of_a_trial(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append(finish(0))
        assert not log.append(report(0, 7))
    with EventLog.open(path) as log:
        assert not log.append(interrupt(0))
        assert log.append(begin(1))
    assert events_of(path) == [finish(0), begin(1)]


def test_an_open_log_has_the_record_of_what_it_held_when_it_was_opened(path: Path) -> None:
    events = [sweep_started(), *trial(0), begin(1), report(1, 0)]
    with EventLog.open(path) as log:
        for event in events:
            log.append(event)
        assert log.record == record_from_events([])
    with EventLog.open(path) as log:
        log.append(finish(1))
        assert log.record == record_from_events(events)


def test_an_end_that_is_torn_never_was(path: Path) -> None:
    path.write_bytes(encode_event(begin(0)) + encode_event(finish(0))[:-1])
    assert events_of(path) == [begin(0)]
    with EventLog.open(path) as log:
        assert log.record.trials[0].outcome is None
        log.append(interrupt(0))
    assert events_of(path) == [begin(0), interrupt(0)]


def test_a_line_that_is_no_event_is_left_out_aloud(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(
        encode_event(begin(0)) + b'{"event": "FromTheFuture"}\n' + encode_event(finish(0))
    )
    with caplog.at_level(logging.WARNING):
        assert events_of(path) == [begin(0), finish(0)]
    assert "no event" in caplog.text


def test_no_log_is_no_events(path: Path) -> None:
    assert events_of(path) == []
    assert LineCounter(path).count() == 0


def test_lines_that_cannot_be_read_now_are_not_counted(path: Path) -> None:
    """The counter serves threads that show progress, which go on."""
    path.write_bytes(encode_event(begin(0)))
    counter = LineCounter(path)
    assert counter.count() == 1
    path.unlink()
    path.mkdir()  # reading it fails
    assert counter.count() == 1


def test_32_threads_write_whole_lines_in_their_order(path: Path) -> None:
    n_threads, n_steps = 32, 50
    barrier = threading.Barrier(n_threads)

    def work(number: int) -> None:
        barrier.wait()
        for event in trial(number, n_steps):
            log.append(event)

    with EventLog.open(path) as log:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = events_of(path)
    assert len(events) == n_threads * (n_steps + 2) == LineCounter(path).count()
    for number in range(n_threads):
        own = [event for event in events if getattr(event, "trial", None) == number]
        assert own == trial(number, n_steps)


def test_two_threads_report_one_step_once(path: Path) -> None:
    barrier = threading.Barrier(8)
    taken: list[bool] = []

    def work() -> None:
        barrier.wait()
        taken.append(log.append(report(0, 0)))

    with EventLog.open(path) as log:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == [False] * 7 + [True]


class MeetingStep(int):
    """A step that, looked up, lets another thread look it up too, if it can."""

    meeting: threading.Barrier

    def __gt__(self, other: int) -> bool:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.meeting.wait(0.2)
        return int.__gt__(self, other)


def test_no_thread_looks_a_step_up_while_another_writes_it(path: Path) -> None:
    MeetingStep.meeting = threading.Barrier(2)
    event = MetricsReported(0, 1.0, MeetingStep(3), {"loss": 0.5})
    with EventLog.open(path) as log, ThreadPoolExecutor(2) as pool:
        log.append(MetricsReported(0, 1.0, 2, {"loss": 0.5}))
        taken = list(pool.map(log.append, [event, event]))
    assert sorted(taken) == [False, True]
    assert len(events_of(path)) == 2


def test_a_closed_log_takes_nothing(path: Path) -> None:
    log = EventLog.open(path)
    log.close()
    log.close()
    with pytest.raises(StorageError, match="closed"):
        log.append(begin(0))


def test_texts_of_any_length_are_bounded_in_the_log_and_when_they_are_read(path: Path) -> None:
    """Earlier versions wrote them whole."""
    failed = FailedOutcome(0, 1.0, "x" * 100_000, "y" * 100_000)
    assert len(encode_event(failed)) < 30_000
    fields = {"event": "Failed", "trial": 0, "time": 1.0, "hopeless": False}
    line = json.dumps(fields | {"cause": failed.cause, "details": failed.details}) + "\n"
    path.write_text(line)
    ((read, _),) = read_events(path)
    assert isinstance(read, FailedOutcome)
    assert len(read.cause) <= 1_000
    assert len(read.details) < 30_000
    with EventLog.open(path) as log:
        outcome = log.record.trials[0].outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.details == "", "of ten thousand trials nobody reads it again"
