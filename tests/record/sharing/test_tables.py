"""What the database promises to sweeps that ask, hold and write at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psycopg
import pytest

from automl.errors import ConfigError
from automl.record.lease import TrialHolder, this_boot, this_holder
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database, DatabaseAwayError
from automl.record.sharing.shared_log import ship_lines
from automl.record.sharing.study_tables import StoredStudy, StoredTrial
from automl.trial import FinishedOutcome, InterruptedOutcome, MetricsReported
from tests.postgres import Server
from tests.record.sharing.lines import write

N_TRIALS = 60
ASKS = """
import sys
from automl.record.sharing import study_tables as tables
from automl.record.sharing.database import Database
url, sweep = sys.argv[1:]
database, number = Database(url), 0
while True:
    with database.transaction() as cursor:
        tables.lock_study(cursor, 1)
        tables.claim_trial(cursor, 1, sweep, tables.StoredTrial(number, {"asked": number}))
        made = cursor.fetchone() is not None
        n_asked, _ = tables.count_trials_and_edits(cursor, 1)
    if n_asked == number:
        break
    number = n_asked
"""


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    with Database(database) as opened:
        yield opened


def make_study(url: str, n_trials: int = N_TRIALS, *sweeps: str) -> StoredStudy:
    with Database(url) as database, database.transaction() as cursor:
        study_tables.make_tables(cursor, "it")
        study_tables.add_study(cursor, "a", "uuid", {}, "config", n_trials)
        study = study_tables.find_study(cursor, "a")
        assert study is not None
        for sweep in sweeps:
            study_tables.add_sweep(cursor, study.id, sweep, this_holder())
    return study


def claim(database: Database, sweep: str, number: int) -> bool:
    with database.transaction() as cursor:
        study_tables.lock_study(cursor, 1)
        study_tables.claim_trial(cursor, 1, sweep, StoredTrial(number, {"x": 0.1}))
        return cursor.fetchone() is not None


def lapse(url: str, sweep: str) -> None:
    """The leases of a sweep end, by the database's clock."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE automl_trials SET lease_until = clock_timestamp() - interval '1 s' "
            "WHERE sweep = %s",
            (sweep,),
        )


def take_over(database: Database, sweep: str, *busy: int) -> tuple[int, int] | None:
    with database.transaction() as cursor:
        return study_tables.take_over_trial(cursor, 1, sweep, (), busy)


def table_lines(url: str) -> list[str]:
    with Database(url) as database, database.transaction() as cursor:
        return [e.line.decode() for e in study_tables.events_after(cursor, 1, 0, 1000)]


def test_processes_that_ask_together_make_exactly_as_many_trials_as_are_wanted(
    database: str, db: Database
) -> None:
    make_study(database)
    asking = [
        subprocess.Popen([sys.executable, "-c", ASKS, database, f"sweep-{n}"]) for n in range(4)
    ]
    assert [process.wait(300) for process in asking] == [0] * 4
    with db.transaction() as cursor:
        trials = study_tables.trials_from(cursor, 1, 0)
    assert trials == [StoredTrial(number, {"asked": number}) for number in range(N_TRIALS)]


def test_a_number_that_was_taken_is_not_made_again(database: str, db: Database) -> None:
    make_study(database, 3)
    assert claim(db, "ours", 0)
    assert not claim(db, "theirs", 0)
    assert not claim(db, "theirs", 2)
    assert claim(db, "theirs", 1)
    assert claim(db, "ours", 2)
    assert not claim(db, "ours", 3)


def test_a_total_is_raised_and_never_lowered(database: str, db: Database) -> None:
    make_study(database, 1)
    claim(db, "ours", 0)

    def is_made(number: int, n_trials: int) -> bool:
        with db.transaction() as cursor:
            study_tables.raise_n_trials(cursor, 1, n_trials)
        return claim(db, "ours", number)

    assert not is_made(1, n_trials=1)
    assert is_made(1, n_trials=3)
    assert is_made(2, n_trials=2), "somebody counts on the third"


def test_a_study_is_deleted_with_all_that_the_database_has_of_it(
    database: str, db: Database
) -> None:
    study = make_study(database, N_TRIALS, "a")
    assert claim(db, "a", 0)
    with db.transaction() as cursor:
        study_tables.add_events(cursor, study.id, "a", [(10, "{}")])
        study_tables.delete_study(cursor, study.id)
    with db.transaction() as cursor:
        assert study_tables.study_names(cursor) == []
    assert table_lines(database) == []


def test_a_trial_is_taken_over_when_its_lease_has_ended_and_not_before(
    database: str, db: Database
) -> None:
    make_study(database, 3, "ours", "theirs")
    claim(db, "theirs", 0)
    assert take_over(db, "ours") is None
    lapse(database, "theirs")
    assert take_over(db, "ours", 0) is None, "it runs here"
    assert take_over(db, "ours") == (0, 2)
    with db.transaction() as cursor:
        assert study_tables.renew_trial_leases(cursor, 1, "theirs", [0]) == {}
        assert study_tables.renew_trial_leases(cursor, 1, "ours", [0]) == {0: 2}
    lapse(database, "ours")
    with db.transaction() as cursor:
        assert study_tables.renew_trial_leases(cursor, 1, "ours", [0]) == {0: 2}, "nobody took it"
    assert take_over(db, "theirs") is None


def test_a_trial_whose_lease_is_just_renewed_is_not_taken_over(database: str, db: Database) -> None:
    """Who was stopped for longer than its lease and woke has its trials, or another has them."""
    make_study(database, 2, "ours", "theirs")
    claim(db, "theirs", 0)
    lapse(database, "theirs")
    with Database(database) as renewing, ThreadPoolExecutor(1) as pool:
        with renewing.transaction() as cursor:
            assert study_tables.renew_trial_leases(cursor, 1, "theirs", [0]) == {0: 1}
            taken = pool.submit(take_over, db, "ours")
            wait([taken], timeout=0.5)  # it sees a lease that has ended
        assert taken.result() is None
    with db.transaction() as cursor:
        assert study_tables.renew_trial_leases(cursor, 1, "theirs", [0]) == {0: 1}


def test_what_was_given_back_is_taken_at_once(database: str, db: Database) -> None:
    make_study(database, 2, "ours", "theirs")
    claim(db, "theirs", 0)
    with db.transaction() as cursor:
        study_tables.give_back_trials(cursor, 1, "theirs")
    assert take_over(db, "ours") == (0, 2)
    with db.transaction() as cursor:
        assert study_tables.take_over_trial(cursor, 1, "other", (), ()) is None
        assert study_tables.take_over_trial(cursor, 1, "other", ["ours"], ()) == (0, 3), (
            "its process is gone"
        )


def test_nothing_of_an_attempt_is_taken_once_there_is_a_later_one(
    database: str, db: Database, tmp_path: Path
) -> None:
    study = make_study(database, 2, "ours", "theirs")
    claim(db, "theirs", 0)
    theirs, ours = tmp_path / "theirs.log", tmp_path / "ours.log"
    write(theirs, (MetricsReported(0, 1.0, 0, {"val_loss": 0.5}), 1))
    assert len(ship_lines(db, study.id, "theirs", theirs)) == 1
    lapse(database, "theirs")
    assert take_over(db, "ours") == (0, 2)
    write(
        theirs,
        (MetricsReported(0, 2.0, 1, {"val_loss": 0.4}), 1),
        (FinishedOutcome(0, 3.0, 0.4), 1),
    )
    write(ours, (MetricsReported(0, 4.0, 1, {"val_loss": 0.3}), 2))
    assert len(ship_lines(db, study.id, "theirs", theirs)) == 2, "they are passed over"
    assert ship_lines(db, study.id, "theirs", theirs) == []
    ship_lines(db, study.id, "ours", ours)
    assert [line.count('"val_loss":0.5') for line in table_lines(database)] == [1, 0]
    assert '"val_loss":0.3' in table_lines(database)[1]


def test_what_is_shipped_again_after_a_lost_answer_is_there_once(
    database: str, db: Database, tmp_path: Path
) -> None:
    study = make_study(database, 2, "ours")
    log = tmp_path / "ours.log"
    claim(db, "ours", 0)
    write(
        log,
        (MetricsReported(0, 1.0, 0, {"val_loss": 0.5}), 1),
        (InterruptedOutcome(0, 2.0, "why"), 1),
    )
    ship_lines(db, study.id, "ours", log)
    assert ship_lines(db, study.id, "ours", log) == []
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE automl_sweeps SET shipped = 0")
    with pytest.raises(Exception, match="duplicate key"):
        ship_lines(db, study.id, "ours", log)
    assert len(table_lines(database)) == 2


def test_a_trial_that_has_ended_is_nobodys_to_go_on_with(
    database: str, db: Database, tmp_path: Path
) -> None:
    study = make_study(database, 2, "ours", "theirs")
    log = tmp_path / "ours.log"
    claim(db, "ours", 0)
    end = (FinishedOutcome(0, 1.0, 0.5), 1)
    write(log, end, (MetricsReported(0, 2.0, 7, {"val_loss": 0.1}), 1))
    ship_lines(db, study.id, "ours", log)
    assert len(table_lines(database)) == 1
    lapse(database, "ours")
    assert take_over(db, "theirs") is None
    with db.transaction() as cursor:
        assert study_tables.open_trials(cursor, 1) == []


def test_tables_of_another_version_are_refused(database: str, db: Database) -> None:
    make_study(database)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE automl_version SET version = 99")
    with pytest.raises(ConfigError, match="are of version 99"), db.transaction() as cursor:
        study_tables.make_tables(cursor, "it")


def test_a_database_that_went_away_is_used_again_when_it_is_back(postgres: Server) -> None:
    url = postgres.url(postgres.new_database(), tcp=True)
    make_study(url, 2, "ours")
    with Database(url) as db:
        assert claim(db, "ours", 0)
        postgres.stop()
        try:
            with pytest.raises(DatabaseAwayError, match="does not answer"):
                claim(db, "ours", 1)
        finally:
            postgres.start()
        assert claim(db, "ours", 1)


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        Database("postgresql://ann:hunter2@127.0.0.1:1/x").check()
    assert "hunter2" not in str(refused.value)


def test_a_process_is_gone_by_its_boot_its_number_and_its_start() -> None:
    me = this_holder()
    assert TrialHolder.from_text(me.text()) == me
    assert not me.is_gone(this_boot())
    earlier = TrialHolder(me.host, me.boot, me.pid, "1")
    assert earlier.is_gone(this_boot()), "its number was given out again"
    assert not earlier.is_gone("another machine")
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert TrialHolder(me.host, me.boot, ended.pid, "1").is_gone(this_boot())


@pytest.mark.slow
def test_who_is_stopped_in_a_transaction_does_not_keep_the_others_waiting(
    database: str, db: Database
) -> None:
    make_study(database, 2)
    made = []

    def is_stopped_in_it(stopped: Database) -> None:
        with stopped.transaction() as cursor:
            study_tables.lock_study(cursor, 1)
            made.append(claim(db, "ours", 0))
            study_tables.lock_study(cursor, 1)

    with Database(database) as stopped, pytest.raises(DatabaseAwayError):
        is_stopped_in_it(stopped)
    assert made == [True]


def test_a_line_of_a_stranger_is_one_line(database: str, db: Database) -> None:
    make_study(database, 2)
    with db.transaction() as cursor:
        study_tables.add_events(cursor, 1, "theirs", [(1, "a\nb\u00e9")])
        assert [e.line for e in study_tables.events_after(cursor, 1, 0, 9)] == [b"a?b?\n"]


def test_threads_take_turns(database: str, db: Database) -> None:
    make_study(database, 200)
    begun = threading.Barrier(2)

    def count() -> list[int]:
        begun.wait()
        found = []
        for _ in range(50):
            with db.transaction() as cursor:
                study_tables.lock_study(cursor, 1)
                number, _ = study_tables.count_trials_and_edits(cursor, 1)
                study_tables.claim_trial(cursor, 1, "ours", StoredTrial(number, {}))
                row = cursor.fetchone()
                found.append(-1 if row is None else row[0])
        return found

    with ThreadPoolExecutor(2) as pool:
        numbers = [n for counted in pool.map(lambda _: count(), range(2)) for n in counted]
    assert sorted(numbers) == list(range(100))
