"""A shared study as one sweep sees it, while the way to its database is lost and found."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from automl.config import StudyConfig
from automl.record.sharing.shared import Claim, Shared


@pytest.mark.slow
def test_a_connection_that_the_database_has_closed_is_opened_again(
    database: str, tmp_path: Path
) -> None:
    """As for who was stopped within a transaction: the next question is asked in vain, no more."""
    config = StudyConfig(name="a", dir=str(tmp_path), storage=database, n_trials=9)
    shared = Shared.open(config, tmp_path)
    try:
        shared.register("uuid", {}, "config")
        shared.begin()

        def lose() -> None:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'automl' AND datname = current_database()"
                )

        lose()
        assert [shared.pull(), shared.pull()] == [False, True]
        assert shared.is_away, "until the keeper has asked"
        lose()
        assert [shared.claim(0, {}), shared.claim(0, {})] == [Claim.NONE, Claim.MADE]
    finally:
        shared.close()
