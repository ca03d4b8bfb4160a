"""A shared study as one sweep sees it, while the way to its database is lost and found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from automl.config import StudyConfig
from automl.record.sharing.database import Database, DatabaseAwayError
from automl.record.sharing.shared_record import SharedRecord, TrialClaim
from automl.record.sharing.study_tables import StoredTrial
from tests.postgres import Server


class Deaf(Database):
    """Does not hear the answer to a transaction that the database has taken, if told so."""

    is_deaf = False

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor]:
        with super().transaction() as cursor:
            yield cursor
        if self.is_deaf:
            raise DatabaseAwayError("the answer was lost")


@contextmanager
def joined(config: StudyConfig, database: Database) -> Iterator[SharedRecord]:
    """A sweep that takes part in a study that has just begun."""
    shared = SharedRecord(config, Path(config.dir), database)
    try:
        shared.register("uuid", {}, "config")
        shared.begin()
        yield shared
    finally:
        shared.close()


@pytest.fixture
def config(database: str, tmp_path: Path) -> StudyConfig:
    return StudyConfig(name="a", dir=str(tmp_path), storage=database, n_trials=9)


def nothing(told: object) -> None:
    pass


def start(shared: SharedRecord, *busy: int) -> None:
    """Start the threads; the study's state is read at once."""
    shared.start(lambda: busy, lambda standing: None, lambda error: None, nothing, nothing)


@pytest.mark.slow
def test_a_connection_that_the_database_has_closed_is_opened_again(
    database: str, config: StudyConfig
) -> None:
    """A sweep stopped within a transaction loses it; only its next question has no answer."""

    def lose() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'automl' AND datname = current_database()"
            )

    with joined(config, Database(database)) as shared:
        lose()
        assert [shared.pull(), shared.pull()] == [False, True]
        assert shared.is_away, "until the keeper has asked"
        lose()
        assert [shared.claim(0, {}), shared.claim(0, {})] == [TrialClaim.NONE, TrialClaim.MADE]


@pytest.mark.slow
def test_a_server_that_is_stopped_is_not_waited_for(
    database: str, config: StudyConfig, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by who asks nor at the end: its kernel takes what is sent, and nobody answers."""
    monkeypatch.setattr("automl.record.sharing.database.PATIENCE_SECONDS", 1.0)
    shared = SharedRecord(config, Path(config.dir), Database(database))
    shared.register("uuid", {}, "config")
    shared.begin()
    start(shared)
    with postgres.suspended():
        begun = time.monotonic()
        with closing(shared):
            assert shared.claim(0, {}) is TrialClaim.NONE
            assert time.monotonic() - begun < 10
        assert time.monotonic() - begun < 60


def test_a_trial_whose_making_was_not_heard_of_is_the_sweeps_at_once(
    database: str, config: StudyConfig
) -> None:
    with joined(config, deaf := Deaf(database)) as shared:
        deaf.is_deaf = True
        assert shared.claim(0, {"x": 0.5}) is TrialClaim.NONE
        deaf.is_deaf = False
        start(shared)
        assert shared.standing.n_left == 1
        assert shared.take_over_trial() == 0
        assert shared.log.held == {0: 2}
        assert [heard.trials for heard in shared.peer_news()] == [[StoredTrial(0, {"x": 0.5})]]


def test_a_trial_whose_giving_was_not_heard_of_is_the_sweeps_at_once(
    database: str, config: StudyConfig
) -> None:
    """Another sweep held the trial, and gave it back."""
    with joined(config, Database(database)) as other:
        assert other.claim(0, {}) is TrialClaim.MADE
        assert other.claim(1, {}) is TrialClaim.MADE
    with joined(config, deaf := Deaf(database)) as shared:
        start(shared)
        deaf.is_deaf = True
        assert shared.take_over_trial() is None
        deaf.is_deaf = False
        assert [shared.take_over_trial(), shared.take_over_trial(), shared.take_over_trial()] == [
            0,
            1,
            None,
        ]
        assert shared.log.held == {0: 3, 1: 2}


def test_nothing_is_asked_while_leases_could_not_be_renewed(
    database: str, config: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be back, or this process woken: its trials would be ended at once."""
    with joined(config, Database(database)) as shared:
        with monkeypatch.context() as late:
            late.setattr("automl.record.sharing.background_duties.GIVE_UP_SECONDS", 0.0)
            assert shared.claim(0, {}) is TrialClaim.NONE
            assert shared.is_away, "and the sweep waits"
        assert shared.is_away, "until the keeper has looked"
        assert shared.claim(0, {}) is TrialClaim.MADE
        start(shared)
        assert not shared.is_away
