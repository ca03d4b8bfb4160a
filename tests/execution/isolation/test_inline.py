"""Trials in threads of the sweep's own process: what is put back, when, and what is said."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import torch

from automl.execution.executor import InlineExecutor, TrialFeed
from automl.execution.trial_isolation import ThreadIsolation
from automl.execution.watched_values import put_back_watched_values, read_watched_values
from automl.trial import FinishedOutcome, ProcessEntry, TrialEvent, TrialOutcome, Verdict
from tests.execution.isolation.conftest import of_objectives
from tests.models.conftest import make_spec
from tests.places import ON_HOST

SIDE_BY_SIDE = "execution=inline: trials run side by side in this process"
CANNOT_END = "a trial left this process changed, which execution=inline cannot end"


@pytest.fixture(autouse=True)
def _before() -> Iterator[None]:
    """What a test breaks here would be met by others."""
    before = read_watched_values()
    yield
    assert put_back_watched_values(before) == []


class Trial:
    """One in a thread of its own, that does what it is told."""

    def __init__(self, apart: ThreadIsolation) -> None:
        self._apart = apart
        self._act: Callable[[], object] | None = None
        self._told, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._done.acquire()

    def do(self, act: Callable[[], object] | None) -> None:
        self._act = act
        self._told.release()
        self._done.acquire()

    def end(self) -> None:
        self._act = None
        self._told.release()
        self._thread.join()

    def _run(self) -> None:
        with self._apart():
            self._done.release()
            while self._told.acquire() and self._act is not None:
                self._act()
                self._done.release()


def change_both() -> None:
    """What the process has, and what each thread has of its own."""
    os.environ["AUTOML_TEST_LEFT"] = "1"
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)


def test_a_sweep_that_has_ended_is_told_nothing_by_the_next() -> None:
    """Its last trial may end long after it, and put back what there was."""
    ours, handler = logging.getLogger("automl"), logging.NullHandler()
    ours.addHandler(handler)
    trial = Trial(ThreadIsolation())
    ours.removeHandler(handler)
    trial.end()
    assert handler not in ours.handlers


def test_what_a_trial_alone_changed_is_put_back(caplog: pytest.LogCaptureFixture) -> None:
    trial = Trial(ThreadIsolation())
    trial.do(change_both)
    assert torch.get_default_dtype() is torch.float64
    trial.end()
    assert torch.get_default_dtype() is torch.float32
    assert "AUTOML_TEST_LEFT" not in os.environ
    assert caplog.records == []


def test_side_by_side_the_process_is_put_back_when_none_runs_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apart = ThreadIsolation()
    for _ in range(2):
        first = Trial(apart)
        second = Trial(apart)
        second.do(change_both)
        second.end()
        assert torch.get_default_dtype() is torch.float64, "the first may rely on it"
        first.end()
        assert torch.get_default_dtype() is torch.float32
        assert "AUTOML_TEST_LEFT" not in os.environ
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(SIDE_BY_SIDE)


def test_side_by_side_a_threads_own_is_put_back_at_once() -> None:
    apart = ThreadIsolation()
    other = Trial(apart)
    before = torch.is_grad_enabled()
    with apart():
        torch.set_grad_enabled(not before)
        torch.set_default_device("meta")
    assert torch.is_grad_enabled() is before
    assert torch.ones(1).device.type == "cpu"
    other.end()


def test_what_cannot_be_put_back_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    apart = ThreadIsolation()
    for _ in range(2):
        trial = Trial(apart)
        trial.do(lambda: os.chdir("/"))
        trial.end()
        os.chdir(tmp_path)
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(CANNOT_END)
    assert "working directory (FileNotFoundError: " in message
    assert apart.process_is_reusable, "the sweep's own process goes on"


def test_threads_and_processes_may_be_the_sweeps(caplog: pytest.LogCaptureFixture) -> None:
    apart, ends = ThreadIsolation(), threading.Event()
    with apart():
        thread = threading.Thread(target=ends.wait)
        thread.start()
    assert caplog.records == []
    ends.set()
    thread.join()


def test_the_executor_keeps_its_trials_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = InlineExecutor(
        ProcessEntry("automl.objectives.training_session:open_session", of_objectives()),
        tmp_path / "logs",
    )
    events: list[TrialEvent] = []
    threads = torch.get_num_threads()

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    for number, act in enumerate(["look", "change_dtype", "look"]):
        feed = TrialFeed([make_spec(tmp_path, {"act": act}, number)], lambda taken: None)
        executor.execute(feed, ON_HOST, on_events)
    executor.close()
    torch.set_num_threads(threads)
    ended = [event for event in events if isinstance(event, TrialOutcome)]
    assert [type(event) for event in ended] == [FinishedOutcome] * 3, ended
    assert [record.getMessage() for record in caplog.records] == []
