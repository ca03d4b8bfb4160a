"""The store breaks in the main thread while a trial trains: the lock outlives every trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.record.event_log import EventLog
from automl.record.studies import is_study_held
from automl.trial import Event, FinishedOutcome, SweepEnded
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Done, Program, Running, wait_until
from tests.end_to_end.records import Records
from tests.end_to_end.troubled import BEGAN, BROKE, HELD_AT_EXIT
from tests.processes import is_running

pytestmark = pytest.mark.slow

TROUBLED = "tests.end_to_end.troubled"
WORDS = (
    "study.name=silent",
    "study.n_trials=3",
    "study.grace_seconds=0.5",
    "admission.max_concurrent_trials=3",
    "devices.only=cpu",
    "objective=python",
    f"objective.target={TROUBLED}:silent",
    "space={x: 1}",
)
END_SECONDS = 15.0
"""A program that waits for its silent trial never ends; one that does not needs a moment."""


def break_it(program: Program, records: Records, *words: str) -> Running:
    """A sweep whose journal broke and whose lock has just come free."""
    sweep = program.start_module(TROUBLED, *WORDS, *words)
    sweep.wait_until((records.path / BROKE).exists, "the journal that breaks")
    wait_until(lambda: not is_study_held(records.path), "the lock given back")
    return sweep


def test_an_error_while_trials_are_stopped_gives_no_lock_back(program: Program) -> None:
    program.environment["DEAF"] = "1"
    records = Records(program.folder, "silent")
    sweep = break_it(program, records, "execution=inline")
    sweep.process.wait(END_SECONDS)
    check_words(sweep.wait())
    assert (records.path / HELD_AT_EXIT).read_text() == "True"


def test_the_last_event_that_cannot_be_written_is_an_error_like_any_other(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = EventLog.append

    def append_until_the_end(self: EventLog, event: Event) -> bool:
        if isinstance(event, SweepEnded):
            raise StorageError("the log's disk has gone")
        return append(self, event)

    monkeypatch.setattr(EventLog, "append", append_until_the_end)
    done = call("study.name=late", "study.n_trials=1", "training.epochs=1", "devices.only=cpu")
    assert (done.code, done.stderr) == (1, "automl: the log's disk has gone\n")
    assert "go on with: python -m automl resume late" in done.stdout
    assert json.loads((folder / "studies/late/status.json").read_text())["ended"] == "broken"


def check_words(done: Done) -> None:
    assert (done.code, done.stderr) == (1, "automl: the journal's disk has gone\n")
    assert "go on with: python -m automl resume silent" in done.stdout


def test_no_worker_outlives_the_lock_and_nothing_is_lost(program: Program) -> None:
    records = Records(program.folder, "silent")
    sweep = break_it(program, records)
    assert not is_running(int((records.path / BEGAN).read_text()))
    check_words(sweep.wait())
    assert list(records.outcomes()) == [1], "ended after the store broke: in the event log"
    running = dict.fromkeys(range(3), "RUNNING")
    assert records.optuna_states() == running, "and not told to the store"
    causes = {event.trial: event.cause for event in records.interrupted()}
    assert sorted(causes) == [0, 2]
    assert causes[0] == "did not report within study.grace_seconds=0.5"
    assert "the sweep stops; interrupted after step" in causes[2]

    resumed = program.call("resume", "study.name=silent")
    assert (resumed.code, resumed.stderr) == (0, "")
    assert records.optuna_states() == dict.fromkeys(range(3), "COMPLETE")
    assert all(isinstance(outcome, FinishedOutcome) for outcome in records.outcomes().values())
    trained = (records.path / "trained").read_text().split()
    assert sorted(trained) == ["0", "1", "2"], "trial 1 is told, and not trained again"


def test_where_threads_cannot_be_killed_the_lock_lasts_as_long_as_the_process(
    program: Program,
) -> None:
    records = Records(program.folder, "silent")
    sweep = break_it(program, records, "execution=inline")
    sweep.process.wait(END_SECONDS)
    check_words(sweep.wait())
    assert (records.path / HELD_AT_EXIT).read_text() == "True"
    assert list(records.outcomes()) == [1]
    assert sorted(event.trial for event in records.interrupted()) == [0, 2]
