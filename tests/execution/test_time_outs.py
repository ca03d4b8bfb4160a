"""Trials that take too long or say nothing, and outcomes that come as their time ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from automl.execution.executor import TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    TrialEvent,
    TrialSpec,
    Verdict,
)
from tests.execution.supervised import ENTRY, HOST, execute, outcomes, pause, spec


def test_a_trial_that_a_pack_was_fed_has_its_time_too(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5, silence_timeout_seconds=30.0)
    ended = outcomes(execute(tmp_path, [spec(0), spec(1, "hang")], limits))
    assert isinstance(ended[0], FinishedOutcome)
    failed = ended[1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


def test_a_trial_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    failed = outcomes(execute(tmp_path, [spec(0, "hang")], limits))[0]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


def test_a_time_out_is_seen_while_reports_keep_coming(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def slower_than_the_trial(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        pause(0.2)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, slower_than_the_trial)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"
    steps = [event.step for event in events if isinstance(event, MetricsReported)]
    assert steps == list(range(len(steps))), "all that it said until then counts"


def test_a_trial_that_only_warns_is_silent(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, silence_timeout_seconds=0.5)
    failed = outcomes(execute(tmp_path, [spec(0, "say_for_ever")], limits))[0]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "reported nothing for execution.silence_timeout_seconds=0.5"


def test_of_a_pack_only_the_member_that_took_too_long_has_failed(tmp_path: Path) -> None:
    for seconds in (1, 5, 25):  # a busy machine may hold both up for longer than the one has left
        limits = WorkerLimits(max_workers=1, trial_timeout_seconds=seconds)
        first = TrialSpec(0, {"act": "joined_late", "seconds": seconds / 2}, "", 0)
        specs = [first, spec(1), spec(2)]
        ended = outcomes(execute(tmp_path / str(seconds), specs, limits))
        if isinstance(ended.get(1), InterruptedOutcome):
            break
    late, other = ended[0], ended[1]
    assert isinstance(late, FailedOutcome)
    assert late.cause == f"exceeded execution.trial_timeout_seconds={seconds}"
    assert isinstance(other, InterruptedOutcome)
    assert (other.pack_dissolved, other.by_worker_death) == (True, False)
    assert other.cause == f"its pack broke: trial 0 {late.cause}"
    assert 2 not in ended, "never taken from the feed"


def test_a_trial_that_the_sweep_killed_is_not_timed_out_after_it(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def linger_and_kill(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], MetricsReported):
            pause(1.0)
            executor.kill("too late")  # its end is not seen at once
        return {}

    feed = TrialFeed([spec(0, "report_and_hang")], lambda taken: None)
    executor.execute(feed, HOST, linger_and_kill)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, InterruptedOutcome)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


def test_a_trial_that_was_timed_out_is_not_interrupted_after_it(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def linger_then_kill(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if any(isinstance(event, MetricsReported) for event in events):
            executor.kill("too late")
        events.extend(new)
        if isinstance(new[0], MetricsReported):
            pause(1.0)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, linger_then_kill)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


@pytest.mark.parametrize("n_trials", [1, 2], ids=["alone", "pack"])
def test_an_outcome_that_was_told_before_the_time_out_was_seen_counts(
    tmp_path: Path, n_trials: int
) -> None:
    """The last report is judged and so comes before the outcome, which lies in the pipe then."""
    judging = JudgedReports("val_loss", partial(_only_at, 2 if n_trials == 1 else 0))
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5, judging=judging)
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def linger_at_the_first(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if isinstance(new[0], MetricsReported) and not any(
            isinstance(e, MetricsReported) for e in events
        ):
            pause(1.0)
        events.extend(new)
        return {}

    feed = TrialFeed([spec(number) for number in range(n_trials)], lambda taken: None)
    executor.execute(feed, HOST, linger_at_the_first)
    assert {n: type(o) for n, o in outcomes(events).items()} == {0: FinishedOutcome}
    assert (feed.next() is None) == (n_trials == 1), "a worker that was ended is fed nothing"
    executor.execute(TrialFeed([spec(5)], lambda taken: None), HOST, linger_at_the_first)
    executor.close()
    assert isinstance(events[-1], FinishedOutcome), "in another worker"


def test_reports_that_nobody_waits_for_arrive_though_nothing_comes_after_them(
    tmp_path: Path,
) -> None:
    limits = WorkerLimits(max_workers=1, silence_timeout_seconds=1.0)
    events = execute(tmp_path, [spec(0, "report_and_hang")], limits)
    assert [event.step for event in events if isinstance(event, MetricsReported)] == [0, 1, 2]
    assert isinstance(events[-1], FailedOutcome)


def _only_at(rung: int, last_step: int, step: int) -> Sequence[int]:
    return [rung] if last_step < rung <= step else []
