"""Questions of running trials: answered by the main thread, whatever comes of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.errors import StorageError
from automl.execution.executor import InlineExecutor
from automl.record.event_log import EventLog, read_events
from automl.running.loop.asking import (
    LEARNING_SPACE,
    TrialAsker,
)
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    QuestionAsked,
    WaitingTrial,
)
from automl.running.trials.carrier import TrialCarrier
from automl.running.trials.param_questions import NoParamQuestions, ParamQuestions
from automl.search.study import Study
from automl.trial import (
    UNKNOWN_REQUEST,
    FinishedOutcome,
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    Params,
    ParamsNotSuggested,
    ParamsSuggested,
    ProcessEntry,
    Question,
    Reply,
    SweepStopping,
    TrialSpec,
    TrialStarted,
)
from tests.places import placed
from tests.running.loop.plain_ports import NO_PORTS, PlainPorts, ports_of
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World
from tests.search.conftest import Studies, ask

LR = {"low": 0.1, "high": 0.2}
GPU = placed("GPU-a", 5)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with warnings.catch_warnings():  # opening a study sets filters for the whole process
        studies = Studies(tmp_path)
        yield studies.open(entries={}, asks_for_params=True)
        studies.close()


class Scene:
    """A trial that runs, and what it asks."""

    def __init__(self, study: Study) -> None:
        assert study.suggester is not None
        self.said: list[str] = []
        self.questions = ParamQuestions(study, study.suggester, self.said.append)
        self.number = ask(study).number
        nothing = cast(Any, None)
        limits = AdmissionLimits(max_concurrent_trials=1, headroom_bytes=0, stale_seconds=5.0)
        asker = TrialAsker(ports_of(cast(Any, PlainPorts())), 1, 1, self.questions)
        self.loop = SweepLoop(NO_PORTS, nothing, Ledger(), limits, asker)
        waiting, key = WaitingTrial(PlannedTrial(self.number, {})), self.number
        execution = AdmittedExecution(key, UNKNOWN_REQUEST, GPU, None, {key: waiting})
        self.loop.running[key] = self.loop.executions[key] = execution

    def ask(self, question: Question) -> list[Reply]:
        replies: list[Reply] = []
        self.loop.handle(QuestionAsked(question, replies.append), 0.0)
        return replies

    @property
    def params(self) -> Params:
        """The params that the loop knows for the running trial, and for another run of it."""
        return self.loop.running[self.number].members[self.number].trial.params


def test_the_loop_knows_what_a_trial_was_given(study: Study) -> None:
    scene = Scene(study)
    (reply,) = scene.ask(ParamQuestion(scene.number, "lr", LR))
    assert isinstance(reply, ParamAnswer)
    assert scene.params == {"lr": reply.value}
    assert scene.ask(ParamsNotSuggested(scene.number, ("lr",))) == [ParamAnswer()]


def test_what_no_param_can_be_is_refused(study: Study) -> None:
    scene = Scene(study)
    (reply,) = scene.ask(ParamQuestion(scene.number, "lr", {"low": 2.0, "high": 1.0}))
    assert isinstance(reply, ParamRefusal)
    assert "low=2.0 is above high=1.0" in reply.cause
    assert scene.params == {}


def test_a_trial_waits_for_no_study_that_is_lost(study: Study) -> None:
    scene, replies = Scene(study), list[Reply]()
    study.close()
    question = QuestionAsked(ParamQuestion(scene.number, "lr", LR), replies.append)
    with pytest.raises(StorageError):
        scene.loop.handle(question, 0.0)
    assert replies == [SweepStopping()]


def test_what_was_found_is_told_once_and_again_at_the_end_if_it_grew(study: Study) -> None:
    assert study.suggester is not None
    questions, told = ParamQuestions(study, study.suggester, print), list[Sequence[str]]()
    for n in range(5):
        number = ask(study).number
        study.suggest(ParamQuestion(number, "lr", LR))
        if n == 4:
            study.suggest(ParamQuestion(number, "b", LR))
        study.tell(number, FinishedOutcome(number, 0.0, 1.0))
        told.append(list(questions.found()))
    assert [len(lines) for lines in told] == [0, 0, 2, 0, 0]
    assert told[2][1] == "  lr: 0.1..0.2"
    assert "b: " in list(questions.found(at_end=True))[2]
    assert list(questions.found(at_end=True)) == []


def test_what_was_known_before_the_sweep_is_no_news(study: Study) -> None:
    assert study.suggester is not None
    for _ in range(3):
        number = ask(study).number
        study.suggest(ParamQuestion(number, "lr", LR))
        study.tell(number, FinishedOutcome(number, 0.0, 1.0))
    questions = ParamQuestions(study, study.suggester, print)
    assert [*questions.found(), *questions.found(at_end=True)] == []


# --- one at a time --------------------------------------------------------------------------------


class FindingOut(NoParamQuestions):
    """Until so many trials have ended."""

    def __init__(self, world: World, n: int) -> None:
        self._world, self._n = world, n

    @property
    def one_at_a_time(self) -> bool:  # type: ignore[override]
        return len(self._world.told) < self._n


def test_trials_run_one_at_a_time_until_the_space_is_known() -> None:
    plan = Plan(request_bytes=10**9, peak_bytes=10**9, seconds=2.0)
    world = World({"GPU-a": 24 * 10**9}, [plan] * 12)
    world.loop.asking.questions = FindingOut(world, 3)
    at_once: list[tuple[int, int]] = []
    submit = world.submit

    def watched(start: ExecutionStart) -> None:
        at_once.append((len(world.told), len(world.loop.running)))
        submit(start)

    world.submit = watched  # type: ignore[method-assign]
    world.run()
    assert at_once[:3] == [(0, 1), (1, 1), (2, 1)]
    assert at_once[3:7] == [(3, 1), (3, 2), (3, 3), (3, 4)]
    assert len(world.told) == 12


def test_what_waits_says_why() -> None:
    assert "one trial at a time" in LEARNING_SPACE.reason


# --- in the pool's thread -------------------------------------------------------------------------


def test_a_trial_begins_without_what_was_drawn_ahead(study: Study, tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.log") as log:
        executor = InlineExecutor(ProcessEntry("none"), tmp_path)
        carrier = TrialCarrier(
            executor=executor, log=log, study=study, ledger=Ledger(), post=lambda message: None
        )
        spec = TrialSpec(0, {"depth": 2, "width": 3}, "", 0, drawn_ahead=["depth"])
        assert carrier.open_feed(0, [spec], GPU).next() == spec
    (started,) = [event for event, _ in read_events(tmp_path / "events.log")]
    assert isinstance(started, TrialStarted)
    assert started.params == {"width": 3}


@pytest.mark.parametrize("stopping", [False, True])
def test_a_param_is_logged_before_the_trial_has_it(
    study: Study, tmp_path: Path, stopping: bool
) -> None:
    asked: list[LoopMessage] = []

    def post(message: LoopMessage) -> None:
        asked.append(message)
        if isinstance(message, QuestionAsked):
            message.reply(ParamAnswer(0.15))

    with EventLog.open(tmp_path / "events.log") as log:
        carrier = TrialCarrier(
            executor=InlineExecutor(ProcessEntry("none"), tmp_path),
            log=log,
            study=study,
            ledger=Ledger(),
            post=post,
        )
        feed = carrier.open_feed(0, [TrialSpec(0, {}, "", 0)], GPU)
        if stopping:
            carrier.stopping.set()
        reply = feed.answer(ParamQuestion(0, "lr", LR))
        logged = [event for event, _ in read_events(tmp_path / "events.log")]
    if stopping:
        assert (reply, asked, logged) == (SweepStopping(), [], [])
    else:
        assert reply == ParamAnswer(0.15)
        suggested = [e for e in logged if isinstance(e, ParamsSuggested)]
        assert [(e.params, e.entries) for e in suggested] == [({"lr": 0.15}, {"lr": LR})]
