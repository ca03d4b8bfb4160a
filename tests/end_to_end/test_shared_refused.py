"""A database that is not the one of the study, or of another automl: said, and nothing touched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.end_to_end.conftest import snapshot
from tests.end_to_end.refused import refused
from tests.end_to_end.test_shared import Machines
from tests.postgres import Server, database, postgres

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.slow


@pytest.fixture
def machines(tmp_path: Path, database: str, empty_database: Path) -> Iterator[Machines]:
    """One of them, "a", has begun a study."""
    shutil.copyfile(empty_database, mlflow := tmp_path / "mlflow.db")
    machines = Machines(tmp_path, database, mlflow)
    assert machines["a"].call(*machines.words(1)).code == 0
    yield machines
    machines.end_all()


@pytest.fixture
def other(postgres: Server) -> str:
    """The URL of an empty database beside the study's."""
    return postgres.url(postgres.new_database())


def kept(study: Path) -> dict[str, bytes]:
    """All of a study's folder, but who had it last."""
    return {name: content for name, content in snapshot(study).items() if name != "lock"}


def content(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All that is ours of a database; and that no process of ours is connected to it."""
    with psycopg.connect(url) as connection:
        connected = connection.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'automl' AND datname = current_database()"
        )
        assert connected.fetchall() == []
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'automl_%'"
        ).fetchall()
        return {
            name: sorted(
                connection.execute(f"SELECT t::text FROM {name} t".encode()).fetchall(), key=str
            )
            for (name,) in names
        }


def test_a_database_without_the_study_of_this_folder_is_refused(
    machines: Machines, other: str
) -> None:
    study = machines.records("a").path
    before = kept(study)
    for words in (machines.words(2), ("resume", "study.name=shared")):
        said = refused(machines["a"], *words, f"study.storage='{other}'")
        assert "study.name=shared: " in said
        assert "Name the study.storage that it was begun with" in said
        assert kept(study) == before
        assert not any(rows for name, rows in content(other).items() if name != "automl_version")


def test_a_database_with_another_study_of_this_name_is_refused(
    machines: Machines, other: str
) -> None:
    storage, known = f"study.storage='{other}'", "study.name=shared"
    assert machines["b"].call(*machines.words(1), storage).code == 0
    study = machines.records("a").path
    before, stored = kept(study), content(other)
    for words in (machines.words(2), ("resume", known), ("status", known)):
        said = refused(machines["a"], *words, storage)
        assert "holds another study of this name than " in said
        assert str(study) in said
        assert "Name the database that this one was begun with" in said
        assert kept(study) == before
        assert content(other) == stored


def test_a_database_that_was_set_back_is_refused(machines: Machines, database: str) -> None:
    """As from a copy that was made when the study had just begun."""
    machines.run("DELETE FROM automl_events")
    machines.run("DELETE FROM automl_trials")
    machines.run("UPDATE automl_studies SET n_events = 0, n_asked = 0")
    study = machines.records("a").path
    before, stored = kept(study), content(database)
    said = refused(machines["a"], *machines.words(2))
    assert "the database was set back, or is another" in said
    assert "Name the one that it was begun with" in said
    assert kept(study) == before
    assert content(database) == stored


def test_tables_of_another_version_are_refused(machines: Machines, database: str) -> None:
    machines.run("UPDATE automl_version SET version = 99")
    stored = content(database)
    known = ("study.name=shared", f"study.storage='{database}'")
    for words in (machines.words(2), ("resume", *known), ("status", *known)):
        said = refused(machines["b"], *words)
        assert "its tables are of version 99 of automl's" in said
        assert "Use the automl that made them on every machine, or name another" in said
        assert not (machines["b"].folder / "studies" / "shared").exists()
        assert content(database) == stored
