"""What every executor promises; each is checked for what its `ExecutorCapabilities` say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from automl.execution.cluster.nodes import ClusterNodes
from automl.execution.cluster.nodes_executor import NodesExecutor
from automl.execution.executor import Executor, InlineExecutor, TrialFeed
from automl.execution.worker_messages import JudgedReports
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.search.pruners.median import MedianPruner
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    ProcessEntry,
    ProcessHosted,
    PrunedOutcome,
    Question,
    Reply,
    SweepStopping,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.execution.cluster.clusters import nodes_of, on, ray_cluster
from tests.places import ON_HOST

ENTRY = ProcessEntry("tests.execution.objectives:open_scripted")
HOST = ON_HOST
LIMITS = WorkerLimits(
    max_workers=4,
    trial_timeout_seconds=60.0,
    judging=JudgedReports("val_loss", MedianPruner(n_warmup_steps=0).rungs),
)


class OneNode:
    """A cluster of one, while the tests of this file run, and only where it is asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @cached_property
    def nodes(self) -> ClusterNodes:
        cluster = self._stack.enter_context(ray_cluster(1))
        return self._stack.enter_context(nodes_of(cluster.address))

    def close(self) -> None:
        self._stack.close()


_cluster = OneNode()
EXECUTORS: dict[str, Callable[[Path, WorkerLimits], Executor]] = {
    "inline": lambda path, limits: InlineExecutor(ENTRY, path),
    "workers": lambda path, limits: WorkersExecutor(ENTRY, path, limits),
    "ray": lambda path, limits: NodesExecutor(_cluster.nodes, ENTRY, path, limits),
}


@pytest.fixture(scope="module", autouse=True)
def _closed_cluster() -> Iterator[None]:
    yield
    _cluster.close()


RAYS_OWN = (pytest.mark.filterwarnings("ignore"), pytest.mark.slow)


ALL = ["inline", "workers", pytest.param("ray", marks=RAYS_OWN)]


@pytest.fixture(params=ALL)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    """Which waits for a trial as long as any busy machine makes it; see `impatient`."""
    made = EXECUTORS[request.param](tmp_path, LIMITS)
    yield made
    made.close()


@pytest.fixture(params=ALL)
def impatient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    limits = replace(LIMITS, silence_timeout_seconds=3.0)
    made = EXECUTORS[request.param](tmp_path, limits)
    yield made
    made.close()


def carry(
    executor: Executor,
    act: str,
    number: int = 0,
    verdict: Callable[[TrialEvent], Verdict] = lambda event: Verdict.GO_ON,
    answer: Callable[[Question, Sequence[TrialEvent]], Reply] = lambda question, events: (
        ParamAnswer()
    ),
) -> list[TrialEvent]:
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(event for event in new if not isinstance(event, ProcessHosted))
        return {event.trial: verdict(event) for event in new}

    specs = [TrialSpec(number, {"act": act}, "", 0)]
    feed = TrialFeed(specs, lambda spec: None, lambda question: answer(question, events))
    place = on(_cluster.nodes.present()[0]) if isinstance(executor, NodesExecutor) else HOST
    executor.execute(feed, place, on_events)
    outcomes = [event for event in events if isinstance(event, TrialOutcome)]
    assert len(outcomes) == 1, events
    assert events[-1] is outcomes[0]
    return events


def test_reports_come_in_order_and_the_outcome_last(executor: Executor) -> None:
    events = carry(executor, "finish")
    steps = [event.step for event in events if isinstance(event, MetricsReported)]
    assert steps == [0, 1, 2]
    assert isinstance(events[-1], FinishedOutcome)


def test_a_failure_is_an_outcome_and_the_next_trial_runs(executor: Executor) -> None:
    failed = carry(executor, "fail")[-1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause == "ValueError: scripted"
    assert isinstance(carry(executor, "finish", 1)[-1], FinishedOutcome)


@pytest.mark.parametrize(
    ("verdict", "outcome"), [(Verdict.PRUNE, PrunedOutcome), (Verdict.STOP, InterruptedOutcome)]
)
def test_a_verdict_reaches_the_trial_at_its_next_report(
    executor: Executor, verdict: Verdict, outcome: type[TrialOutcome]
) -> None:
    events = carry(executor, "finish", verdict=lambda event: verdict)
    assert isinstance(events[-1], outcome)
    n_reports = sum(isinstance(event, MetricsReported) for event in events)
    assert n_reports <= 2, "at most one report late"


def test_a_trial_is_answered_what_it_asks_for_after_all_it_had_reported(
    executor: Executor,
) -> None:
    def answer(question: Question, events: Sequence[TrialEvent]) -> Reply:
        assert question == ParamQuestion(5, "n", {"low": 0, "high": 9})
        return ParamAnswer(len(events))

    ended = carry(executor, "ask", 5, answer=answer)[-1]
    assert isinstance(ended, FinishedOutcome)
    assert ended.value == 2


def test_a_trial_may_ask_and_log_at_the_same_time(executor: Executor) -> None:
    ended = carry(executor, "ask_while_it_logs", answer=lambda question, events: ParamAnswer(1))[-1]
    assert isinstance(ended, FinishedOutcome)
    assert ended.value == 100


@pytest.mark.parametrize("reply", [SweepStopping(), ParamRefusal("no such range")])
def test_a_trial_learns_that_there_is_no_answer(executor: Executor, reply: Reply) -> None:
    ended = carry(executor, "ask", answer=lambda question, events: reply)[-1]
    assert isinstance(ended, InterruptedOutcome)
    assert ended.cause == repr(reply)


def test_a_trial_that_asks_whether_to_go_on_is_told_of_the_report_just_made(
    executor: Executor,
) -> None:
    def verdict(event: TrialEvent) -> Verdict:
        if not isinstance(event, MetricsReported) or event.step == 0:
            return Verdict.GO_ON
        time.sleep(0.2)  # longer than a report waits by itself
        return Verdict.PRUNE

    ended = carry(executor, "ask_whether", verdict=verdict)[-1]
    assert isinstance(ended, PrunedOutcome)
    assert ended.step == 1


def test_trials_run_side_by_side(executor: Executor) -> None:
    ends: dict[int, TrialEvent] = {}

    def run(number: int) -> None:
        ends[number] = carry(executor, "finish", number)[-1]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == [0, 1, 2, 3]
    assert all(isinstance(end, FinishedOutcome) for end in ends.values())


def test_what_on_event_raises_comes_out(executor: Executor) -> None:
    def full_disk(event: TrialEvent) -> Verdict:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        carry(executor, "finish", verdict=full_disk)


def test_a_trial_that_kills_its_process_is_interrupted_and_the_next_runs(
    executor: Executor,
) -> None:
    if not executor.can.own_process:
        pytest.skip("trials share our process")
    died = carry(executor, "die")[-1]
    assert isinstance(died, InterruptedOutcome)
    assert (died.cause, died.by_worker_death) == ("its process died: SIGKILL", True)
    assert isinstance(carry(executor, "finish", 1)[-1], FinishedOutcome)


def test_a_trial_that_hangs_is_ended(impatient: Executor) -> None:
    if not impatient.can.timeouts:
        pytest.skip("threads cannot be ended")
    hung = carry(impatient, "hang")[-1]
    assert isinstance(hung, FailedOutcome)
    assert hung.cause == "reported nothing for execution.silence_timeout_seconds=3"
    assert isinstance(carry(impatient, "finish", 1)[-1], FinishedOutcome)


def test_a_trial_that_is_to_end_is_interrupted_and_the_next_runs(executor: Executor) -> None:
    if not executor.can.timeouts:
        pytest.skip("threads cannot be ended")
    ended: dict[int, TrialEvent] = {}

    def hang(number: int) -> None:
        ended[number] = carry(executor, "hang", number)[-1]

    hanging = {n: threading.Thread(target=hang, args=(n,)) for n in (3, 5)}
    for thread in hanging.values():
        thread.start()
    for number, thread in hanging.items():
        while thread.is_alive():  # it may not have begun
            executor.end_trials({number, 7}, f"somebody else has {number}")
            thread.join(0.1)
        outcome = ended[number]
        assert isinstance(outcome, InterruptedOutcome)
        assert (outcome.cause, outcome.by_worker_death) == (f"somebody else has {number}", False)
    assert isinstance(carry(executor, "finish", 4)[-1], FinishedOutcome)


def test_what_a_trial_prints_goes_to_its_own_file_and_into_its_failure(
    executor: Executor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not executor.can.own_output:
        pytest.skip("trials share our output")
    failed = carry(executor, "print", 3)[-1]
    assert isinstance(failed, FailedOutcome)
    assert "said by the trial" in failed.details
    (path,) = tmp_path.rglob("trial-00003.log")
    log = path.read_text()
    assert log == "said by the trial\nValueError: after printing\n"
    assert capfd.readouterr().out == ""


def test_a_warm_process_serves_many_trials(executor: Executor) -> None:
    values = {getattr(carry(executor, "finish", n)[-1], "value", None) for n in range(3)}
    assert len(values) == 1, "each trial returned the pid of its process"
