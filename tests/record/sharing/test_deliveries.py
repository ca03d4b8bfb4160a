"""The delivery of a shared study among sweeps that come and go, as the database knows it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from automl.errors import ConfigError
from automl.record.lease import this_holder
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.delivery_tables import StoreDeliverer, UndeliveredCounts
from automl.record.sharing.shared_requests import SharedRequestQueue
from automl.record.sharing.study_tables import StoredStudy, StoredTrial

OURS, THEIRS = StoreDeliverer(1, "store", "ours"), StoreDeliverer(1, "store", "theirs")


class Store:
    """A study of three trials, ours, theirs and nobody's, and what the database says of it."""

    def __init__(self, url: str, database: Database) -> None:
        self.url, self.database = url, database
        with database.transaction() as cursor:
            study_tables.make_tables(cursor, "it")
            study_tables.add_study(cursor, "a", "uuid", {}, "config", 9)
            for number, sweep in enumerate(("ours", "theirs", "gone")):
                study_tables.claim_trial(cursor, 1, sweep, StoredTrial(number, {}))

    def study(self) -> StoredStudy:
        with self.database.transaction() as cursor:
            study = study_tables.find_study(cursor, "a")
        assert study is not None
        return study

    def stand(self, me: StoreDeliverer) -> int | None:
        """The term in which it is elected."""
        with self.database.transaction() as cursor:
            delivery_tables.stand_for_election(cursor, me)
            return delivery_tables.delivery_standing(cursor, me).term

    def renew(self, me: StoreDeliverer, term: int) -> bool:
        with self.database.transaction() as cursor:
            return delivery_tables.renew_lease(cursor, me, term)

    def note(self, me: StoreDeliverer, trial: int, run: str) -> str:
        with self.database.transaction() as cursor:
            return delivery_tables.note_run(cursor, me, trial, run)

    def pending(self, me: StoreDeliverer, *, of_others: bool) -> list[tuple[int, bool]]:
        with self.database.transaction() as cursor:
            files = delivery_tables.pending_files(cursor, me, of_others=of_others)
            return [(file.trial, file.is_due) for file in files]

    def counts(self, me: StoreDeliverer) -> UndeliveredCounts:
        with self.database.transaction() as cursor:
            return delivery_tables.undelivered_counts(cursor, me)

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(statement.encode())


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Database(database) as opened:
        yield Store(database, opened)


def test_one_is_elected_until_its_lease_ends(store: Store) -> None:
    assert store.stand(OURS) == 1
    assert store.stand(THEIRS) is None
    assert store.stand(StoreDeliverer(1, "store of theirs", "theirs")) == 1, "another store"
    assert store.stand(OURS) == 1
    assert store.renew(OURS, 1)
    store.run("UPDATE automl_stores SET lease_until = '-infinity'")
    assert not store.renew(OURS, 1)
    assert store.stand(THEIRS) == 2
    assert store.stand(OURS) is None
    with store.database.transaction() as cursor:
        delivery_tables.end_lease(cursor, THEIRS, "ours")
        assert delivery_tables.elected_deliverer(cursor, OURS) is None, "its process is unknown"
    assert store.stand(OURS) is None
    with store.database.transaction() as cursor:
        delivery_tables.leave_delivery(cursor, THEIRS)
    assert store.stand(OURS) == 3
    with store.database.transaction() as cursor:
        delivery_tables.attend_delivery(cursor, OURS)
        assert delivery_tables.elected_deliverer(cursor, OURS) is None
        assert delivery_tables.elected_deliverer(cursor, THEIRS) == ("ours", this_holder())


def test_who_was_away_for_longer_than_a_lease_begins_another_term(store: Store) -> None:
    assert store.stand(OURS) == 1
    store.run("UPDATE automl_stores SET lease_until = '-infinity'")
    assert store.stand(OURS) == 2
    assert not store.renew(OURS, 1)


def test_of_sweeps_that_begin_at_once_one_is_elected(store: Store) -> None:
    def stand(name: str) -> int | None:
        with Database(store.url) as own, own.transaction() as cursor:
            me = StoreDeliverer(1, "store", name)
            delivery_tables.stand_for_election(cursor, me)
            return delivery_tables.delivery_standing(cursor, me).term

    with ThreadPoolExecutor(8) as pool:
        assert sorted(map(str, pool.map(stand, "abcdefgh"))) == ["1", *["None"] * 7]


def test_a_trial_has_the_run_that_was_noted_first(store: Store) -> None:
    store.stand(OURS)
    assert store.note(OURS, 0, "first") == "first"
    assert store.note(THEIRS, 0, "second") == "first"
    with store.database.transaction() as cursor:
        assert delivery_tables.noted_runs(cursor, OURS) == {0: ("first", False)}
        assert delivery_tables.note_parent(cursor, OURS, "1", "a") == "a"
        assert delivery_tables.note_parent(cursor, THEIRS, "1", "b") == "a"


def test_files_are_due_when_their_trial_has_ended_and_its_run_is_written(store: Store) -> None:
    store.stand(OURS)
    for number in range(3):
        store.note(OURS, number, f"run {number}")
    assert store.pending(OURS, of_others=False) == [(0, False)]
    with store.database.transaction() as cursor:
        study_tables.end_trials(cursor, 1, [0, 1])
    assert store.counts(OURS) == UndeliveredCounts(1, 2, 1, 0)
    with store.database.transaction() as cursor:
        delivery_tables.note_delivered(cursor, OURS, [0])
    assert store.pending(OURS, of_others=True) == [(0, True), (1, False), (2, False)]
    assert store.pending(THEIRS, of_others=False) == [(1, False)]
    with store.database.transaction() as cursor:
        delivery_tables.attend_delivery(cursor, THEIRS)
        files = delivery_tables.pending_files(cursor, OURS, of_others=True)
        assert [file.is_own for file in files] == [True, False, False]
        assert [file.deliverer for file in files] == [None, this_holder(), None]
    with store.database.transaction() as cursor:
        delivery_tables.note_files(cursor, OURS, [0])
    assert store.pending(OURS, of_others=True) == [(1, False), (2, False)]
    assert store.counts(OURS) == UndeliveredCounts(1, 1, 0, 0)


def test_only_who_is_elected_says_how_far_the_delivery_is(store: Store) -> None:
    store.stand(OURS)
    for me, offset in ((OURS, 70), (THEIRS, 90), (OURS, 50)):
        with store.database.transaction() as cursor:
            delivery_tables.note_delivered_offset(cursor, me, offset)
            assert delivery_tables.delivery_standing(cursor, me).upto == 70


def test_runs_that_are_gone_are_forgotten_once(store: Store) -> None:
    store.stand(OURS)
    store.note(OURS, 0, "old")
    with store.database.transaction() as cursor:
        delivery_tables.note_parent(cursor, OURS, "1", "parent")
        delivery_tables.forget_runs(cursor, OURS, "parent")
        assert delivery_tables.noted_runs(cursor, OURS) == {}
    assert store.note(OURS, 0, "new") == "new"
    with store.database.transaction() as cursor:
        delivery_tables.forget_runs(cursor, THEIRS, "parent")
        assert delivery_tables.noted_runs(cursor, THEIRS) == {0: ("new", False)}


def downgrade(store: Store) -> None:
    """Make tables of version 3."""
    store.run("DROP TABLE automl_requests")
    store.run("DROP INDEX automl_events_edits")
    columns = (("studies", "n_edits"), ("studies", "owner"), ("sweeps", "lease_until"))
    for table, column in (*columns, ("trials", "request")):
        store.run(f"ALTER TABLE automl_{table} DROP COLUMN {column}")
    store.run("UPDATE automl_version SET version = 3")


def test_tables_of_version_2_are_upgraded_and_what_was_done_has_its_files(store: Store) -> None:
    downgrade(store)
    for column in ("files", "term", "lease_until"):
        table = "automl_runs" if column == "files" else "automl_stores"
        store.run(f"ALTER TABLE {table} DROP COLUMN {column}")
    store.run("UPDATE automl_version SET version = 2")
    store.run("INSERT INTO automl_stores (study, store, elected) VALUES (1, 'store', 'theirs')")
    store.run("INSERT INTO automl_runs (study, store, trial, run) VALUES (1, 'store', 1, 'of 1')")
    store.run("INSERT INTO automl_runs VALUES (1, 'store', 0, 'of 0', true)")
    for _ in range(2):
        with store.database.transaction() as cursor:
            study_tables.make_tables(cursor, "it")
    assert store.stand(OURS) == 2
    assert store.pending(OURS, of_others=True) == [(1, False)]
    store.run("UPDATE automl_version SET version = 6")
    with pytest.raises(ConfigError, match="version 6"), store.database.transaction() as cursor:
        study_tables.make_tables(cursor, "it")


def test_a_study_in_tables_of_version_3_takes_requests_of_all_its_writers(store: Store) -> None:
    """Those tables do not say who began it."""
    downgrade(store)
    for _ in range(2):
        with store.database.transaction() as cursor:
            study_tables.make_tables(cursor, "it")
    with SharedRequestQueue(store.database, store.study()) as queue:
        request = queue.write("pause", {})
        store.run("UPDATE automl_requests SET role = 'bob'")
        assert queue.pending() == [request]
