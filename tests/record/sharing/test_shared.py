"""A shared study as one sweep sees it, while the way to its database is lost and found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from automl.config import StudyConfig
from automl.record.sharing.database import Database
from automl.record.sharing.shared import Claim, Shared
from tests.postgres import Server


@contextmanager
def joined(config: StudyConfig, database: Database) -> Iterator[Shared]:
    """A sweep that takes part in a study that has just begun."""
    shared = Shared(config, Path(config.dir), database)
    try:
        shared.register("uuid", {}, "config")
        shared.begin()
        yield shared
    finally:
        shared.close()


@pytest.fixture
def config(database: str, tmp_path: Path) -> StudyConfig:
    return StudyConfig(name="a", dir=str(tmp_path), storage=database, n_trials=9)


def start(shared: Shared, *busy: int) -> None:
    """It looks at once how the study stands."""
    shared.start(lambda: busy, lambda standing: None, lambda error: None, lambda trials: None)


@pytest.mark.slow
def test_a_connection_that_the_database_has_closed_is_opened_again(
    database: str, config: StudyConfig
) -> None:
    """As for who was stopped within a transaction: the next question is asked in vain, no more."""

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
        assert [shared.claim(0, {}), shared.claim(0, {})] == [Claim.NONE, Claim.MADE]


@pytest.mark.slow
def test_a_server_that_is_stopped_is_not_waited_for(
    database: str, config: StudyConfig, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by who asks nor at the end: its kernel takes what is sent, and nobody answers."""
    monkeypatch.setattr("automl.record.sharing.database.PATIENCE_SECONDS", 1.0)
    shared = Shared(config, Path(config.dir), Database(database))
    shared.register("uuid", {}, "config")
    shared.begin()
    start(shared)
    with postgres.suspended():
        begun = time.monotonic()
        with closing(shared):
            assert shared.claim(0, {}) is Claim.NONE
            assert time.monotonic() - begun < 10
        assert time.monotonic() - begun < 60
