"""Requests that a sweep answers by itself, without a trial that runs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from automl.config import (
    Config,
    ExecutionConfig,
    ExecutionKind,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
)
from automl.models.families.mlp.family import MLPFamily
from automl.record.sharing.shared_record import SharedRecord
from automl.record.sharing.shared_requests import SharedRequestQueue
from automl.record.sharing.study_fetch import fetch_edits
from automl.record.study_directory import StudyDirectory
from automl.record.study_requests import FolderRequestQueue, RequestAnswer, StudyRequest
from automl.running.loop.asking import TrialAsker
from automl.running.loop.trial_queue import TrialQueue
from automl.running.opening.database_store import DatabaseStore
from automl.running.opening.parts import open_outside_trials
from automl.running.opening.study_store import NoPeerSweeps
from automl.running.prepare.preparation import prepare_study
from automl.running.trials.steering import StartConditions, StudySteering
from automl.search.edited_space import SpaceHistory, edited_space
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.trial import StudyEdited
from tests.postgres import database, postgres

__all__ = ["database", "postgres"]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StudyDirectory]:
    config = StudyConfig(name="calm-crane", dir=str(tmp_path))
    with StudyDirectory.open(config, must_exist=False) as directory:
        directory.files.config.touch()
        yield directory


def answer(directory: StudyDirectory, kind: str, arguments: dict[str, Any]) -> RequestAnswer:
    """Return what a sweep says that has no trials, and that was asked while it was set up."""
    requests = FolderRequestQueue(directory.path, directory.locked_time)
    request = requests.write(kind, arguments)
    asking = SimpleNamespace(n_trials=9)
    study = SimpleNamespace(by_request={}, suggester=None, n_asked=0)
    outside = SimpleNamespace(end_leases=lambda now: [], leave_free=list)
    store = SimpleNamespace(requests=requests, peers=NoPeerSweeps())
    parts: Any = SimpleNamespace(store=store, study=study, outside=outside)
    loop: Any = SimpleNamespace(stop=None, running={}, asking=asking)
    holds = StartConditions(StudyConfig(name="calm-crane"), directory.path, lambda *told: None)
    nothing: Any = None
    StudySteering(parts, loop, nothing, holds, nothing, nothing).look(0.0)
    return cast(RequestAnswer, requests.wait_for_answer(request, 60))


def test_a_pause_that_is_asked_for_while_the_sweep_is_set_up_is_made(
    directory: StudyDirectory,
) -> None:
    answered = answer(directory, "pause", {})
    assert (answered.done, answered.text[:33]) == (True, "no trial starts from now on; 0 ru")


@pytest.mark.parametrize("arguments", [{}, {"points": 1}, {"points": [1]}, {"points": ["lr"]}])
def test_points_that_no_command_writes_are_refused(
    directory: StudyDirectory, arguments: dict[str, Any]
) -> None:
    answered = answer(directory, "enqueue", arguments)
    assert not answered.done
    assert "it cannot be read" in answered.text


def test_a_point_of_a_complete_study_waits_for_a_larger_total(directory: StudyDirectory) -> None:
    FolderRequestQueue(directory.path).write("enqueue", {"points": [{"lr": 0.5}]})
    requests = FolderRequestQueue(directory.path, since=time.time() + 1.0)
    study = SimpleNamespace(by_request={}, suggester=None, n_asked=9)
    outside = SimpleNamespace(end_leases=lambda now: [], leave_free=list)
    prepared = SimpleNamespace(how_to_go_on=lambda n_trials: f"resume study.n_trials={n_trials}")
    store = SimpleNamespace(requests=requests, peers=NoPeerSweeps())
    parts: Any = SimpleNamespace(store=store, study=study, outside=outside, prepared=prepared)
    loop: Any = SimpleNamespace(stop=None, running={}, asking=SimpleNamespace(n_trials=9))
    holds = StartConditions(StudyConfig(name="calm-crane"), directory.path, lambda *told: None)
    nothing: Any = None
    steering = StudySteering(parts, loop, nothing, holds, nothing, nothing)
    (line,) = steering.look(0.0)
    assert "1 more, and 0 of study.n_trials=9 left" in line
    assert line.endswith("resume study.n_trials=10")
    assert steering.look(9.0) == [], "it is told once"
    assert len(requests.pending()) == 1, "the next sweep has it, too"


# --- sweeps that share a study --------------------------------------------------------------------


def trains(x: float) -> float:
    return x


N_TRIALS = 60


class SteeredSweep:
    """A sweep of a study in PostgreSQL, which takes requests and starts no trials."""

    def __init__(self, folder: Path, database: str, edits: tuple[StudyEdited, ...] = ()) -> None:
        folder.mkdir()
        config = Config(
            study=StudyConfig(name="a", dir=str(folder), storage=database, n_trials=N_TRIALS),
            space=dict(edited_space(edits) or {"x": {"low": 0.0, "high": 1.0}}),
            objective=ObjectiveConfig(kind=ObjectiveKind.python, target=f"{__name__}:trains"),
            execution=ExecutionConfig(kind=ExecutionKind.inline),
            model=MLPFamily(),
            sampler=IndependentSampler(),
            pruner=NoPruner(),
        )
        self.config, self.prepared = config, prepare_study(config, edits=edits)
        self.shared = SharedRecord.open(config.study, folder)
        opened = open_shared_storage(self.shared, "config")
        self.study = SharedStudy.open(config.study, self.prepared.rules, folder, opened)
        nothing: Any = None
        self.store = DatabaseStore(config.study, self.shared, self.study, nothing)
        self.executor = SimpleNamespace(renew=lambda entry: None)
        self.asking = TrialAsker(nothing, N_TRIALS, 0)
        loop: Any = SimpleNamespace(stop=None, running={}, asking=self.asking, queue=TrialQueue())
        loop.enqueue = lambda trial: None
        holds = StartConditions(config.study, folder, lambda *told: None)
        self.outside = open_outside_trials(self.prepared, self.study, self.shared.log, folder)
        parts: Any = self
        self.steering = StudySteering(parts, loop, nothing, holds, nothing, nothing)
        with self.shared._main_database.transaction() as cursor:
            self.store.requests.begin(cursor)
        self._now = 0.0

    def look(self) -> list[str]:
        """Look once as the threads and the main thread do; return what is said."""
        self.shared.look()
        self._now += 1.0
        said = self.steering.look(self._now)
        self.store.requests.write_answers()
        return said

    def edits(self) -> tuple[StudyEdited, ...]:
        self.study.hear()
        return self.prepared.edits

    def close(self) -> None:
        self.shared.close()


@pytest.fixture
def sweeps(tmp_path: Path, database: str) -> Iterator[tuple[SteeredSweep, SteeredSweep]]:
    with (
        closing(SteeredSweep(tmp_path / "one", database)) as one,
        closing(SteeredSweep(tmp_path / "other", database)) as other,
    ):
        yield one, other


def ask_sweeps(sweep: SteeredSweep, kind: str, arguments: dict[str, Any]) -> StudyRequest:
    with SharedRequestQueue.open(sweep.config.study) as queue:
        return queue.write(kind, arguments)


def answered(sweep: SteeredSweep, request: StudyRequest) -> RequestAnswer | None:
    with SharedRequestQueue.open(sweep.config.study) as queue:
        return queue.take_answer(request)


WIDENED = {
    "before": {"space.x": {"low": 0.0, "high": 1.0}},
    "after": {"space.x": {"low": 0.0, "high": 2.0}},
    "defaults": {},
}


def test_an_edit_that_two_sweeps_take_at_once_is_made_once(
    sweeps: tuple[SteeredSweep, SteeredSweep],
) -> None:
    one, other = sweeps
    request = ask_sweeps(one, "edit", WIDENED)
    assert one.study.ask() is not None, "the other has not heard of this trial"
    for sweep in sweeps:
        sweep.shared.look()
    text = "space.x.high: 1.0 → 2.0"
    assert one.steering.look(1.0) == [f"edit: {text}"]
    followed, asked = other.steering.look(1.0)
    assert (followed.endswith(f": {text}"), asked) == (True, f"edit: {text}")
    for sweep in sweeps:
        sweep.store.requests.write_answers()
    assert answered(one, request) == RequestAnswer("space.x.high: 1.0 → 2.0")
    (edit,) = one.edits()
    assert other.edits() == (edit,)
    assert (edit.id, edit.n_trials) == (request.id, 1)


def test_an_edit_whose_sweep_was_killed_before_it_answered_is_not_made_again(
    sweeps: tuple[SteeredSweep, SteeredSweep], tmp_path: Path, database: str
) -> None:
    one, other = sweeps
    request = ask_sweeps(one, "edit", WIDENED)
    one.shared.look()
    one.steering.look(1.0)  # its answer is never written
    with closing(SteeredSweep(tmp_path / "later", database, one.prepared.edits)) as later:
        for sweep in (later, other):
            sweep.look()
            assert [edit.id for edit in sweep.edits()] == [request.id]
    assert answered(other, request) == RequestAnswer("space.x.high: 1.0 → 2.0")


def test_a_lowered_total_holds_for_every_sweep(sweeps: tuple[SteeredSweep, SteeredSweep]) -> None:
    one, other = sweeps
    change = {
        "before": {"study.n_trials": N_TRIALS},
        "after": {"study.n_trials": 2},
        "defaults": {},
    }
    ask_sweeps(one, "edit", change)
    one.look()
    assert [one.study.ask() is not None for _ in range(3)] == [True, True, False]
    assert other.study.ask() is None
    assert other.asking.n_trials == 2
    assert other.prepared.config.study.n_trials == 2


def test_a_trial_is_stopped_by_the_sweep_that_has_it(
    sweeps: tuple[SteeredSweep, SteeredSweep],
) -> None:
    one, other = sweeps
    trial = one.study.ask()
    assert trial is not None
    request = ask_sweeps(one, "stop", {"trial": 0, "as": "interrupted"})
    other.look()
    assert answered(one, request) is None
    one.look()  # it has ended the execution already
    answer = answered(one, request)
    assert answer is not None
    assert "the next sweep goes on with it" in answer.text
    request = ask_sweeps(one, "stop", {"trial": 1, "as": "pruned"})
    other.look()
    answer = answered(one, request)
    assert answer is not None
    assert "there is no such trial; the study has 1, from 0 on" in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_edits_and_points_between_kills_are_made_once_and_every_trial_is_of_its_space(
    tmp_path: Path, database: str, seed: int
) -> None:
    """What a killed sweep has not answered, or not even read, another one does."""
    rng, made = random.Random(seed), list[StudyRequest]()
    with ExitStack() as stack:
        folders = (tmp_path / str(n) for n in range(99))

        def begin(edits: tuple[StudyEdited, ...] = ()) -> SteeredSweep:
            return stack.enter_context(closing(SteeredSweep(next(folders), database, edits)))

        sweeps = [begin() for _ in range(3)]
        for step in range(40):
            at = rng.randrange(3)
            sweep = sweeps[at]
            match rng.choice(["edit", "enqueue", "ask", "ask", "look", "look", "kill"]):
                case "edit":
                    now = sweep.edits()
                    space = edited_space(now) or {"x": {"low": 0.0, "high": 1.0}}
                    wide = {"low": 10.0 * step, "high": 10.0 * step + 1}
                    before, after = {"space.x": space["x"]}, {"space.x": wide}
                    change = {"before": before, "after": after, "defaults": {}}
                    made.append(ask_sweeps(sweep, "edit", change))
                case "enqueue":
                    point = {"x": -1.0 - len(made)}
                    given = {"points": [point], "outside": True}
                    made.append(ask_sweeps(sweep, "enqueue", given))
                case "ask":
                    sweep.study.ask()
                case "look":
                    sweep.look()
                case _:  # its answers are never written, and its trials end with their lease
                    if rng.random() < 0.5:
                        sweep.shared.look()
                        sweep.steering.look(1e9)
                    sweeps[at] = begin(fetch_edits(sweep.config.study))
        for sweep in sweeps:
            sweep.look()
        edits = sweeps[0].edits()
        assert sweeps[1].edits() == sweeps[2].edits() == edits == fetch_edits(sweep.config.study)
        answers = {request.id: answered(sweep, request) for request in made}
        assert None not in answers.values()
        done = {request for request, answer in answers.items() if answer and answer.done}
        assert [edit.id for edit in edits if edit.id not in done] == []
        by_request = sweeps[0].study.by_request
        assert done == {*(edit.id for edit in edits), *(r.partition(":")[0] for r in by_request)}
        assert len({edit.id for edit in edits}) == len(edits)
        history = SpaceHistory.from_edits(sweeps[0].prepared.space, edits)
        assert edits, "some were made"
        for sweep in sweeps:
            assert sweep.study.by_request == by_request
            for number in {*range(sweep.study.n_asked)} - {*by_request.values()}:
                value = sweep.study.params(number)["x"]
                assert history.at(number)["x"].domain.contains(value), number
