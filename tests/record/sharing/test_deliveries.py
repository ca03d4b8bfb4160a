"""The division of a shared study's delivery among sweeps that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from automl.record.lease import this_holder
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.delivery_tables import ClaimedTrialRun, StoreDeliverer

OURS, THEIRS = StoreDeliverer(1, "store", "ours"), StoreDeliverer(1, "store", "theirs")


class Store:
    """A study of three trials, ours, theirs and nobody's, and what the database says of it."""

    def __init__(self, url: str, database: Database) -> None:
        self.url, self.database = url, database
        with database.transaction() as cursor:
            study_tables.make_tables(cursor, "it")
            study_tables.add_study(cursor, "a", "uuid", {}, "config", 9)
            for number, sweep in enumerate(("ours", "theirs", "gone")):
                study_tables.claim_trial(cursor, 1, sweep, number, {})

    def stand(self, me: StoreDeliverer, *gone: str) -> bool:
        """Whether it is elected, once it attends."""
        with self.database.transaction() as cursor:
            delivery_tables.attend_delivery(cursor, me, this_holder())
            return delivery_tables.delivery_standing(cursor, me, gone).elected

    def claim(self, me: StoreDeliverer, *gone: str) -> list[ClaimedTrialRun]:
        with self.database.transaction() as cursor:
            return delivery_tables.claim_deliveries(cursor, me, range(9), gone)

    def claimed(self, me: StoreDeliverer, *gone: str) -> list[int]:
        return [each.number for each in self.claim(me, *gone)]

    def note(self, me: StoreDeliverer, trial: int, run: str) -> str:
        with self.database.transaction() as cursor:
            return delivery_tables.note_run(cursor, me, trial, run)

    def lapse(self, sweep: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(
                "UPDATE automl_deliverers SET lease_until = '-infinity' WHERE sweep = %s", (sweep,)
            )


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Database(database) as opened:
        yield Store(database, opened)


def test_each_delivers_what_it_holds_and_who_is_elected_what_is_nobodys(store: Store) -> None:
    assert store.stand(OURS)
    assert not store.stand(THEIRS)
    assert store.claimed(OURS) == [0, 2]
    assert store.claimed(THEIRS) == [1]
    other = StoreDeliverer(1, "store of theirs", "theirs")
    assert store.stand(other), "another store"
    assert store.claimed(other) == [0, 1, 2]


def test_another_is_elected_when_a_lease_has_ended_or_its_process_is_gone(store: Store) -> None:
    assert store.stand(OURS)
    assert store.stand(THEIRS, "ours"), "its process is gone"
    assert not store.stand(OURS)
    store.lapse("theirs")
    assert store.stand(OURS)
    assert store.claimed(OURS) == [0, 1, 2]
    with store.database.transaction() as cursor:
        delivery_tables.resign_as_deliverer(cursor, 1, "ours")
    assert store.stand(THEIRS)
    assert store.claimed(THEIRS) == [0, 1, 2]


def test_who_was_away_for_longer_than_a_lease_is_told(store: Store) -> None:
    def term(*, attends: bool = True) -> int | None:
        with store.database.transaction() as cursor:
            if attends:
                delivery_tables.attend_delivery(cursor, OURS, this_holder())
            return delivery_tables.delivery_term(cursor, OURS)

    assert [term(attends=False), term(), term()] == [None, 1, 1]
    store.lapse("ours")
    assert [term(attends=False), term(), term()] == [None, 2, 2]


def test_a_trial_has_the_run_that_was_noted_first(store: Store) -> None:
    store.stand(OURS)
    assert store.claim(OURS)[0] == ClaimedTrialRun(0, None, fresh=True, held=True)
    assert store.claim(OURS)[0] == ClaimedTrialRun(0, None, fresh=False, held=True), (
        "it may be made by now"
    )
    assert store.note(OURS, 0, "first") == "first"
    assert store.note(THEIRS, 0, "second") == "first"
    store.lapse("ours")
    assert store.stand(THEIRS)
    assert store.claim(THEIRS)[0] == ClaimedTrialRun(0, "first", fresh=False, held=False)
    with store.database.transaction() as cursor:
        assert delivery_tables.note_parent(cursor, OURS, "1", "a") == "a"
        assert delivery_tables.note_parent(cursor, THEIRS, "1", "b") == "a"


def test_what_has_ended_and_is_nobodys_is_left_until_it_is_delivered(store: Store) -> None:
    store.stand(OURS)
    store.stand(THEIRS)

    def left() -> list[int]:
        with store.database.transaction() as cursor:
            return delivery_tables.undelivered_trials(cursor, OURS, ())

    assert left() == []
    with store.database.transaction() as cursor:
        study_tables.end_trials(cursor, 1, [0, 1, 2])
        assert delivery_tables.undelivered_counts(
            cursor, OURS
        ) == delivery_tables.UndeliveredCounts(0, 3, 0)
    assert left() == [2]
    store.lapse("theirs")
    assert left() == [1, 2]
    store.claim(OURS)
    with store.database.transaction() as cursor:
        delivery_tables.note_delivered(cursor, OURS, [1, 2])
    assert left() == []
    assert store.claimed(OURS) == [0]


def test_only_who_is_elected_says_how_far_the_studys_own_values_are(store: Store) -> None:
    store.stand(OURS)
    for me, offset in ((OURS, 70), (THEIRS, 90), (OURS, 50)):
        with store.database.transaction() as cursor:
            delivery_tables.note_delivered_offset(cursor, me, offset)
            assert delivery_tables.undelivered_counts(cursor, me).upto == 70


def test_runs_that_are_gone_are_looked_for_and_forgotten_once(store: Store) -> None:
    store.stand(OURS)
    store.claim(OURS)
    store.note(OURS, 0, "old")
    with store.database.transaction() as cursor:
        delivery_tables.note_parent(cursor, OURS, "1", "parent")
        delivery_tables.forget_runs(cursor, OURS, "parent")
        assert delivery_tables.noted_runs(cursor, OURS) == {}
    assert not store.claim(OURS)[0].fresh
    assert store.note(OURS, 0, "new") == "new"
    with store.database.transaction() as cursor:
        delivery_tables.forget_runs(cursor, THEIRS, "parent")
        assert delivery_tables.noted_runs(cursor, THEIRS) == {0: "new"}
