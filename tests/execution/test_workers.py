"""What only worker processes do: packs over a pipe, warm workers, what they tell while they run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.execution.executor import TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.search.pruners.median import MedianPruner
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    ProcessEntry,
    ProcessHosted,
    ProcessId,
    TrialEvent,
    TrialSpec,
    TrialTagged,
    Verdict,
)
from tests.execution.supervised import ENTRY, HOST, execute, outcomes, spec
from tests.places import placed


def test_a_pack_gets_all_its_trials(tmp_path: Path) -> None:
    ended = outcomes(execute(tmp_path, [spec(n) for n in (4, 7, 9)]))
    assert sorted(ended) == [4, 7, 9]
    assert all(isinstance(o, FinishedOutcome) and o.value == 3.0 for o in ended.values())


def test_a_pack_that_dies_is_dissolved(tmp_path: Path) -> None:
    ended = outcomes(execute(tmp_path, [spec(0), spec(1, "die"), spec(2)]))
    assert isinstance(ended[0], FinishedOutcome)
    broken = ended[1]
    assert isinstance(broken, InterruptedOutcome)
    assert broken.pack_dissolved
    assert broken.cause == "its pack broke: its process died: SIGKILL"
    assert not broken.by_worker_death
    assert 2 not in ended, "never taken from the feed"


def test_a_trial_of_a_pack_that_is_to_end_leaves_the_others_to_go_on_alone(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    specs = [TrialSpec(n, {"act": "joined_late", "seconds": 0.0}, "", 0) for n in (0, 1)]
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if {e.trial for e in new if isinstance(e, MetricsReported)} == {0, 1}:
            executor.end_trials({1}, "somebody else has it")
        return {}

    executor.execute(TrialFeed(specs, lambda taken: None), HOST, on_events)
    executor.close()
    other, ended = (outcomes(events)[n] for n in (0, 1))
    assert isinstance(other, InterruptedOutcome)
    assert isinstance(ended, InterruptedOutcome)
    assert (ended.cause, ended.pack_dissolved) == ("somebody else has it", False)
    assert (other.pack_dissolved, other.by_worker_death) == (True, False)


def test_a_trial_that_paused_in_a_pack_goes_on_in_it_without_its_old_verdict(
    tmp_path: Path,
) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    feed = TrialFeed([spec(0, "pauses"), spec(1)], lambda taken: None)
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        stops = [event for event in events if isinstance(event, InterruptedOutcome)]
        if stops == [new[-1]]:
            feed.add(replace(spec(0, "pauses"), n_starts=1))
        return {0: Verdict.STOP} if len(events) == 2 else {}  # its first report

    with contextlib.closing(executor):
        executor.execute(feed, HOST, on_events)
    ends = [e for e in events if isinstance(e, InterruptedOutcome | FinishedOutcome)]
    assert [(e.trial, type(e)) for e in ends] == [
        (0, InterruptedOutcome),
        (1, FinishedOutcome),
        (0, FinishedOutcome),
    ]


def test_what_programs_hold_counts_as_their_workers_main_memory(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    sizes: list[int] = []

    def on_events(new: Sequence[TrialEvent]) -> dict[int, Verdict]:
        if any(isinstance(event, MetricsReported) for event in new):
            while not (held := max(executor.held_bytes().values())) > 7 * 2**30:
                time.sleep(0.005)  # it is told ten times a second
            sizes.append(held)
        return {}

    executor.execute(TrialFeed([spec(0)], lambda taken: None), placed("GPU-a", 1), on_events)
    executor.close()
    assert sizes


def test_what_a_worker_said_while_nobody_listened_is_passed_on_together(tmp_path: Path) -> None:
    """On a cluster each time is a call to another machine."""
    judging = JudgedReports("val_loss", MedianPruner(n_warmup_steps=0).rungs)
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, judging=judging))
    passed_on: list[list[type]] = []

    def on_events(new: Sequence[TrialEvent]) -> dict[int, Verdict]:
        passed_on.append([type(event) for event in new])
        if isinstance(new[-1], MetricsReported):
            time.sleep(1.0)
        return {}

    executor.execute(TrialFeed([spec(0, "tag_and_finish")], lambda taken: None), HOST, on_events)
    executor.close()
    assert passed_on == [[ProcessHosted], [MetricsReported], [TrialTagged, FinishedOutcome]]


@pytest.mark.parametrize("verdict", [Verdict.PRUNE, Verdict.STOP])
def test_a_trial_that_asks_between_reports_learns_its_verdict(
    tmp_path: Path, verdict: Verdict
) -> None:
    """The answer to its report comes after it went on; asking is told to nobody."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> dict[int, Verdict]:
        events.extend(new)
        return {0: verdict} if isinstance(new[-1], MetricsReported) else {}

    executor.execute(TrialFeed([spec(0, "asks")], lambda taken: None), HOST, on_events)
    executor.close()
    assert [type(event) for event in events] == [ProcessHosted, MetricsReported, InterruptedOutcome]
    assert isinstance(events[-1], InterruptedOutcome)
    assert events[-1].cause == verdict.value


def test_what_workers_warn_of_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, recycle_after_trials=1))
    for number in range(2):
        feed = TrialFeed([spec(number, "warn")], lambda taken: None)
        executor.execute(feed, HOST, lambda events: {})
    executor.close()
    assert [record.getMessage() for record in caplog.records] == ["batch_size is clipped"]


def test_a_full_disk_is_the_sweeps_trouble_not_the_trials(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        execute(tmp_path, [spec(0, "full_disk")])


def test_an_objective_that_cannot_be_opened_is_hopeless(tmp_path: Path) -> None:
    executor = WorkersExecutor(ProcessEntry("tests.execution:none"), tmp_path, WorkerLimits(1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor.execute(TrialFeed([spec(0)], lambda taken: None), HOST, on_events)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, FailedOutcome)
    assert failed.hopeless
    assert "AttributeError" in failed.cause


def test_a_warm_worker_serves_one_execution_at_a_time(tmp_path: Path) -> None:
    """The third execution begins, and ends, while the second has the worker of the first."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=2))
    pids: list[ProcessId] = []

    def carry(number: int, meanwhile: Callable[[], None]) -> None:
        def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            for event in new:
                if isinstance(event, ProcessHosted):
                    pids.append(event.process)
                    assert pids.count(event.process) <= 2, "shared"
                    meanwhile()
            return {}

        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)

    with contextlib.closing(executor):
        carry(0, lambda: None)
        carry(1, lambda: carry(2, lambda: None))
    assert pids[0] == pids[1] != pids[2]


def test_a_worker_learns_its_caps_at_its_begin_and_while_it_runs(tmp_path: Path) -> None:
    """Those of another trial are none of its own, though it is in the same process."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(1))

    def value(number: int, act: str, on_report: Callable[[], None] = lambda: None) -> float:
        ended: list[TrialEvent] = []

        def on_events(events: Sequence[TrialEvent]) -> dict[int, Verdict]:
            ended.extend(events)
            if any(isinstance(event, MetricsReported) for event in events):
                on_report()
            return {}

        executor.execute(TrialFeed([spec(number, act)], lambda spec: None), HOST, on_events)
        assert isinstance(ended[-1], FinishedOutcome)
        return ended[-1].value

    def cap(number: int, size: int) -> None:
        executor.cap_memory({number: {HOST.devices[0]: size}})

    cap(0, 77)
    assert value(0, "capped") == 77
    assert value(1, "capped") == 0
    assert value(2, "capped_later", lambda: cap(2, 78)) == 78
    cap(3, 79)
    cap(4, 80)
    ended = [value(3, "capped"), value(4, "capped"), value(3, "capped")]
    assert ended == [79, 80, 0], "each its own until it ends"
    executor.close()


def test_steps_are_seen_while_a_trial_runs(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(1))
    seen: list[Mapping[int, int]] = []

    def on_events(events: Sequence[TrialEvent]) -> dict[int, Verdict]:
        if any(isinstance(event, MetricsReported) for event in events):
            while executor.n_steps() != {3: 42}:  # written ten times a second
                time.sleep(0.01)
            seen.append(executor.n_steps())
            executor.cap_memory({3: {HOST.devices[0]: 78}})  # for which it waits
        return {}

    executor.execute(TrialFeed([spec(3, "capped_later")], lambda spec: None), HOST, on_events)
    assert seen == [{3: 42}]
    assert executor.n_steps() == {}, "nothing runs"
    executor.close()


def test_a_stop_reaches_a_trial_that_waits_for_no_verdict(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], MetricsReported):
            executor.stop_trials()
        return {}

    executor.execute(TrialFeed([spec(0, "until_stopped")], lambda taken: None), HOST, on_events)
    executor.close()
    assert isinstance(events[-1], InterruptedOutcome)
    steps = [event.step for event in events if isinstance(event, MetricsReported)]
    assert steps == list(range(len(steps))), "in order, none missing"
