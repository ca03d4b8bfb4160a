"""The end of a sweep: whatever raises, no trial outlives it, or the study stays locked."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.config import Config, StudyConfig
from automl.errors import StudyInUseError, TrialsLeftBehindError
from automl.execution.executor import InlineExecutor
from automl.models.families.mlp.family import MLPFamily
from automl.record.event_log import EventLog, read_events
from automl.record.study_directory import StudyDirectory
from automl.running.loop.asking import TrialAsker
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    AdmittedExecution,
    LoopMessage,
    PlannedTrial,
    ReservationReleased,
    StopReason,
    WaitingTrial,
)
from automl.running.trials.carrier import TrialCarrier
from automl.running.trials.executions import (
    JOIN_SECONDS,
    ExecutionPool,
    grace_period,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.terminal.live_display import Display
from automl.terminal.view import SweepView
from automl.trial import (
    UNKNOWN_REQUEST,
    InterruptedOutcome,
    OnEvents,
    Placement,
    ProcessEntry,
    TrialSource,
    TrialSpec,
    TrialStarted,
)
from tests.places import ON_HOST
from tests.running.loop.plain_ports import NO_PORTS

HOST = ON_HOST
GRACE_SECONDS = 8.0
LATE = f"did not report within study.grace_seconds={GRACE_SECONDS:g}"


class Trials(InlineExecutor):
    """Runs trials that end when they are told to stop, when they are killed, or not at all."""

    def __init__(self) -> None:
        super().__init__(ProcessEntry("none"), Path("unused"))
        self.heeds: str | None = "stop"
        self.can_kill = True
        self.fails_to_stop = False
        self.killed_for: str | None = None
        self.began, self.over, self.n_running = threading.Event(), threading.Event(), 0

    def execute(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        assert feed.next() is not None
        self.n_running += 1
        self.began.set()
        self.over.wait(300)
        self.n_running -= 1

    def stop_trials(self) -> None:
        if self.fails_to_stop:
            raise RuntimeError("nobody hears")
        self._heard("stop")

    def kill(self, cause: str) -> bool:
        self.killed_for = cause
        self._heard("kill")
        return self.can_kill

    def _heard(self, word: str) -> None:
        if self.heeds == word:
            self.over.set()


@dataclass
class SaidLines(Display):
    """A display that keeps the lines that it is to print."""

    lines: list[str]

    def show(self, view: SweepView) -> None:
        raise AssertionError("the pool shows no view")

    def say(self, line: str) -> None:
        self.lines.append(line)


class Scene:
    """A sweep with one running trial, and a clock that goes on a second at each idle look."""

    def __init__(self, path: Path) -> None:
        config = Config(
            study=StudyConfig(name="a", dir=str(path), grace_seconds=GRACE_SECONDS),
            model=MLPFamily(),
            sampler=IndependentSampler(),
            pruner=NoPruner(),
            space={"batch_size": 8},
        )
        self.config = config
        self.now, self.said = 0.0, list[str]()
        self.messages: queue.SimpleQueue[LoopMessage] = queue.SimpleQueue()
        self.trials, self.ledger = Trials(), Ledger()
        self.directory = StudyDirectory.open(config.study, must_exist=False)
        self.log = EventLog.open(self.directory.files.events)
        nothing = cast(Any, None)
        limits = AdmissionLimits(max_concurrent_trials=1, headroom_bytes=0, stale_seconds=5.0)
        self.loop = SweepLoop(NO_PORTS, nothing, self.ledger, limits, TrialAsker(nothing, 1, 0))
        self.carrier = TrialCarrier(
            executor=self.trials,
            log=self.log,
            study=nothing,
            ledger=self.ledger,
            post=self.messages.put,
        )
        self.executions = ExecutionPool(
            self.carrier,
            self.directory,
            study=config.study,
            n_threads=1,
            display=SaidLines(self.said),
            loop=self.loop,
            clock=lambda: self.now,
        )

    def start(self) -> None:
        members = {0: WaitingTrial(PlannedTrial(0, {}))}
        self.loop.running[0] = AdmittedExecution(0, UNKNOWN_REQUEST, HOST, None, members)
        self.ledger.reserve(0, HOST)
        self.executions.start(0, [TrialSpec(0, {}, "", 0)], HOST, UNKNOWN_REQUEST)
        assert self.trials.began.wait(300)

    def stop(self, reason: StopReason = StopReason.INTERRUPTED) -> None:
        self.executions.stop(reason)

    def take_next(self) -> None:
        """Take a message as the main thread does."""
        try:
            message = self.messages.get(timeout=0.02)
        except queue.Empty:
            self.now += 1
            return
        if isinstance(message, ReservationReleased):
            self.executions.released(message.key)
            del self.loop.running[message.key]

    def take_until_released(self) -> None:
        """Take messages until the trial's execution is over, however long its thread takes."""
        while self.loop.running:
            self.take_next()

    def run(self, *steps: Callable[[], object]) -> None:
        with self.executions.all_over(self.take_next):
            for step in steps:
                step()

    @property
    def is_locked(self) -> bool:
        """Once the directory was closed."""
        self.directory.__exit__(None, None, None)
        try:
            StudyDirectory.open(self.config.study, must_exist=True).__exit__(None, None, None)
        except StudyInUseError:
            return True
        return False


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.trials.over.set()
    scene.log.close()


def breaks() -> None:
    raise RuntimeError("our own mistake")


def test_an_error_stops_the_trials_and_waits_for_them(scene: Scene) -> None:
    scene.run(scene.start, breaks)
    assert repr(scene.loop.error) == "RuntimeError('our own mistake')"
    assert (scene.trials.n_running, scene.trials.killed_for) == (0, None)
    assert scene.carrier.stopping.is_set()
    assert scene.said == [
        "broken off: running trials write a checkpoint and stop, within 8 s",
    ]
    assert scene.executions.closed_by(lambda: 7) == 7
    assert not scene.is_locked


def test_a_sweep_that_ends_well_stops_nobody(scene: Scene) -> None:
    scene.run(scene.start, scene.trials.over.set, scene.take_until_released)
    assert scene.loop.error is None
    assert scene.said == []
    assert not scene.carrier.stopping.is_set()


def test_trials_that_do_not_stop_in_their_grace_are_killed(scene: Scene) -> None:
    scene.trials.heeds = "kill"
    scene.run(scene.start, scene.stop)
    assert scene.trials.killed_for == LATE
    assert scene.now == pytest.approx(GRACE_SECONDS, abs=1.5)
    assert scene.trials.n_running == 0
    assert scene.said == [], "who pressed Ctrl-C was told then"
    assert scene.executions.closed_by(lambda: 130) == 130


@pytest.mark.parametrize(
    ("timeout", "timed_out", "seconds", "of"),
    [
        (40, True, 2, "2 s of study.timeout_seconds=40"),
        (300, True, 15, "15 s of study.timeout_seconds=300"),
        (3600, True, 30, "study.grace_seconds=30"),
        (40, False, 30, "study.grace_seconds=30"),
        (None, True, 30, "study.grace_seconds=30"),
    ],
)
def test_where_time_is_up_nobody_waits_long(
    timeout: float | None, *, timed_out: bool, seconds: float, of: str
) -> None:
    study = StudyConfig(name="a", timeout_seconds=timeout, grace_seconds=30)
    assert grace_period(study, timed_out=timed_out) == (seconds, f"did not report within {of}")


@pytest.mark.parametrize(("own_process", "seconds"), [(True, 2), (False, GRACE_SECONDS)])
def test_trials_are_killed_soon_after_the_time_is_up_where_they_can_be(
    scene: Scene, *, own_process: bool, seconds: float
) -> None:
    scene.config.study.timeout_seconds = 10
    scene.trials.can = replace(scene.trials.can, own_process=own_process)
    scene.trials.heeds = "kill"
    scene.run(scene.start, partial(scene.stop, StopReason.TIMEOUT))
    assert scene.now == pytest.approx(seconds, abs=1.5)
    assert scene.trials.n_running == 0


@pytest.mark.parametrize(
    ("can_kill", "seconds"), [(True, GRACE_SECONDS + JOIN_SECONDS), (False, GRACE_SECONDS)]
)
def test_what_cannot_be_ended_is_left_behind_and_holds_the_lock(
    scene: Scene, *, can_kill: bool, seconds: float
) -> None:
    scene.trials.heeds, scene.trials.can_kill = None, can_kill
    scene.run(scene.start, breaks)
    assert scene.now == pytest.approx(seconds, abs=1.5)
    assert scene.trials.n_running == 1
    scene.log.close()
    events = [event for event, _ in read_events(scene.directory.files.events)]
    assert [type(event) for event in events] == [TrialStarted, InterruptedOutcome]
    assert isinstance(events[1], InterruptedOutcome)
    assert events[1].cause == f"{LATE}; left behind"
    with pytest.raises(TrialsLeftBehindError) as left:
        scene.executions.closed_by(lambda: 143)
    assert (left.value.exit_code, left.value.__cause__) == (143, None)
    with pytest.raises(TrialsLeftBehindError) as left:
        scene.executions.closed_by(lambda: 1 // 0)
    assert isinstance(left.value.__cause__, ZeroDivisionError)
    assert scene.is_locked


def test_the_sweep_leaves_as_soon_as_it_knows_that_it_must(scene: Scene) -> None:
    """The sweep asks before each message. Asking again changes nothing."""
    scene.trials.heeds, scene.trials.can_kill = None, False

    def grace_goes_by() -> None:
        while not scene.executions.overdue():
            scene.take_next()

    scene.run(scene.start, scene.stop, grace_goes_by)
    assert scene.now == pytest.approx(GRACE_SECONDS, abs=1.5)
    assert scene.is_locked


def test_trials_that_cannot_even_be_told_are_killed_after_their_grace(scene: Scene) -> None:
    scene.trials.heeds, scene.trials.fails_to_stop = "kill", True
    scene.run(scene.start, breaks)
    assert repr(scene.loop.error) == "RuntimeError('our own mistake')", "the first one counts"
    assert (scene.trials.n_running, scene.trials.killed_for) == (0, LATE)


def test_errors_on_the_way_out_hold_nobody_up(scene: Scene) -> None:
    scene.trials.heeds = "kill"
    plain = scene.take_next

    def take_next() -> None:
        plain()
        breaks()

    with scene.executions.all_over(take_next):
        scene.start()
        raise KeyboardInterrupt
    assert isinstance(scene.loop.error, KeyboardInterrupt)
    assert scene.trials.n_running == 0
