"""The tables for the delivery of a shared study to MLflow, and their SQL.

One of the sweeps that deliver to a store is elected for the time of a lease, and it alone writes
runs. Each sweep uploads the files of the trials that it holds, which are on its disk; the elected
one uploads what it has of the trials of sweeps that do not deliver to the store.

The first run that is noted for a trial (`note_run`) counts, whatever the lease says; a sweep that
comes second deletes its own run. Talking to MLflow is done in `automl.tracking`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from automl.record.lease import HOLDER_LEASE_SECONDS, TrialHolder, this_holder

DELIVERY_TABLES = """
CREATE TABLE IF NOT EXISTS automl_stores (
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    store text NOT NULL,
    elected text,
    experiment text,
    parent text,
    upto bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (study, store)
);
CREATE TABLE IF NOT EXISTS automl_deliverers (
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    store text NOT NULL,
    sweep text NOT NULL,
    holder text NOT NULL,
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (study, store, sweep)
);
CREATE TABLE IF NOT EXISTS automl_runs (
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    store text NOT NULL,
    trial int NOT NULL,
    run text,
    done boolean NOT NULL DEFAULT false,
    PRIMARY KEY (study, store, trial)
);
"""
UPGRADE_FROM_2 = """
ALTER TABLE automl_stores ADD COLUMN term int NOT NULL DEFAULT 0,
    ADD COLUMN lease_until timestamptz NOT NULL DEFAULT '-infinity';
UPDATE automl_stores SET term = 1 WHERE elected IS NOT NULL;
ALTER TABLE automl_runs ADD COLUMN files boolean NOT NULL DEFAULT false;
UPDATE automl_runs SET files = done;
"""
"""Makes tables of version 3 of those of version 2, in which a run that was done had its files."""
_LEASE = f"clock_timestamp() + interval '{HOLDER_LEASE_SECONDS} seconds'"
_STORE = "study = %(study)s AND store = %(store)s"


@dataclass(frozen=True)
class StoreDeliverer:
    """A sweep that delivers a study to one store of MLflow."""

    study: int
    store: str
    """The id of the store, which each deliverer finds in it: addresses differ between machines."""
    sweep: str


@dataclass(frozen=True)
class DeliveryStanding:
    """The state of the delivery to a store, as one deliverer sees it."""

    term: int | None
    """The number of the election that this sweep has won, while its lease lasts; else None."""
    experiment: str | None
    parent: str | None
    """The study's own run in MLflow; None: it has none yet."""
    upto: int
    """All events before this byte of `events.log` are delivered; the copies of all sweeps have the
    same bytes."""
    n_events: int
    """The number of lines that a whole copy of the log has."""
    n_asked: int
    """The number of trials that the study has."""


@dataclass(frozen=True)
class PendingFiles:
    """A run that is written, and whose trial's files are not uploaded."""

    trial: int
    run: str
    is_due: bool
    """The trial has ended, and all its values are in the run."""
    is_own: bool
    """This sweep holds the trial."""
    deliverer: TrialHolder | None
    """The delivering process of the sweep that holds the trial; None: that sweep delivers nothing
    to the store now."""


@dataclass(frozen=True)
class UndeliveredCounts:
    """The work that remains for the delivery of a study to a store."""

    n_open: int
    """The number of trials that have not ended."""
    n_ended: int
    """The number of trials that have ended, and whose values or files the store lacks."""
    n_own: int
    """The number of those that this sweep holds."""
    upto: int
    """All events before this byte are delivered, as in `DeliveryStanding`."""


def noted_parents(cursor: psycopg.Cursor, study: int) -> Sequence[str]:
    """Return the study's own run in each store that has one."""
    cursor.execute(
        "SELECT parent FROM automl_stores WHERE study = %s AND parent IS NOT NULL", (study,)
    )
    return [str(row[0]) for row in cursor]


def attend_delivery(cursor: psycopg.Cursor, me: StoreDeliverer) -> None:
    """Register this process as the deliverer of the sweep's files, for the time of a lease."""
    cursor.execute(
        "INSERT INTO automl_deliverers (study, store, sweep, holder, lease_until) "
        f"VALUES (%(study)s, %(store)s, %(sweep)s, %(holder)s, {_LEASE}) "
        "ON CONFLICT (study, store, sweep) DO UPDATE "
        "SET holder = excluded.holder, lease_until = excluded.lease_until",
        {**vars(me), "holder": this_holder().text()},
    )


def leave_delivery(cursor: psycopg.Cursor, me: StoreDeliverer) -> None:
    """Leave runs and files to others."""
    end_lease(cursor, me, me.sweep)
    cursor.execute(f"DELETE FROM automl_deliverers WHERE {_STORE} AND sweep = %(sweep)s", vars(me))


def stand_for_election(cursor: psycopg.Cursor, me: StoreDeliverer) -> None:
    """Elect this sweep, or renew its lease, unless the lease of another one lasts.

    A new term begins where another sweep may have delivered since.
    """
    cursor.execute(
        "INSERT INTO automl_stores (study, store) VALUES (%(study)s, %(store)s) "
        "ON CONFLICT DO NOTHING",
        vars(me),
    )
    cursor.execute(
        "UPDATE automl_stores SET elected = %(sweep)s, "
        f"term = term + (lease_until <= clock_timestamp())::int, lease_until = {_LEASE} "
        f"WHERE {_STORE} AND (elected = %(sweep)s OR lease_until <= clock_timestamp())",
        vars(me),
    )


def elected_deliverer(cursor: psycopg.Cursor, me: StoreDeliverer) -> tuple[str, TrialHolder] | None:
    """Return the elected sweep and its process; None: it is unknown, or this sweep."""
    cursor.execute(
        "SELECT d.sweep, d.holder FROM automl_stores s JOIN automl_deliverers d "
        "ON d.study = s.study AND d.store = s.store AND d.sweep = s.elected "
        "WHERE s.study = %(study)s AND s.store = %(store)s AND d.sweep <> %(sweep)s",
        vars(me),
    )
    row = cursor.fetchone()
    return None if row is None else (row[0], TrialHolder.from_text(row[1]))


def end_lease(cursor: psycopg.Cursor, me: StoreDeliverer, sweep: str) -> None:
    """End the lease of `sweep`, if it is elected."""
    cursor.execute(
        f"UPDATE automl_stores SET lease_until = '-infinity' WHERE {_STORE} AND elected = %(gone)s",
        {**vars(me), "gone": sweep},
    )


def renew_lease(cursor: psycopg.Cursor, me: StoreDeliverer, term: int) -> bool:
    """Renew the lease of a term; return whether it had not ended."""
    cursor.execute(
        f"UPDATE automl_stores SET lease_until = {_LEASE} WHERE {_STORE} AND elected = %(sweep)s "
        "AND term = %(term)s AND lease_until > clock_timestamp() RETURNING term",
        {**vars(me), "term": term},
    )
    return cursor.fetchone() is not None


def delivery_standing(cursor: psycopg.Cursor, me: StoreDeliverer) -> DeliveryStanding:
    cursor.execute(
        "SELECT CASE WHEN s.elected = %(sweep)s AND s.lease_until > clock_timestamp() "
        "THEN s.term END, s.experiment, s.parent, COALESCE(s.upto, 0), a.n_events, a.n_asked "
        "FROM automl_studies a LEFT JOIN automl_stores s ON s.study = a.id "
        "AND s.store = %(store)s WHERE a.id = %(study)s",
        vars(me),
    )
    (row,) = cursor.fetchall()
    return DeliveryStanding(*row)


def note_run(cursor: psycopg.Cursor, me: StoreDeliverer, trial: int, run: str) -> str:
    """Note `run` for the trial if it has none; return the run that it has from now on."""
    cursor.execute(
        "INSERT INTO automl_runs AS r (study, store, trial, run) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (study, store, trial) DO UPDATE SET run = COALESCE(r.run, excluded.run) "
        "RETURNING run",
        (me.study, me.store, trial, run),
    )
    ((kept,),) = cursor.fetchall()
    return str(kept)


def note_parent(cursor: psycopg.Cursor, me: StoreDeliverer, experiment: str, parent: str) -> str:
    """Note `parent` as the study's own run if it has none; return the one that it has now."""
    cursor.execute(
        "UPDATE automl_stores SET experiment = COALESCE(experiment, %(experiment)s), "
        f"parent = COALESCE(parent, %(parent)s) WHERE {_STORE} RETURNING parent",
        {**vars(me), "experiment": experiment, "parent": parent},
    )
    ((kept,),) = cursor.fetchall()
    return str(kept)


def note_delivered(cursor: psycopg.Cursor, me: StoreDeliverer, trials: Iterable[int]) -> None:
    """Note that the store has all values of these trials, which have ended."""
    cursor.execute(
        f"UPDATE automl_runs SET done = true WHERE {_STORE} AND trial = ANY(%(trials)s)",
        {**vars(me), "trials": [*trials]},
    )


def note_files(cursor: psycopg.Cursor, me: StoreDeliverer, trials: Iterable[int]) -> None:
    """Note that the store has the files of these trials."""
    cursor.execute(
        f"UPDATE automl_runs SET files = true WHERE {_STORE} AND trial = ANY(%(trials)s)",
        {**vars(me), "trials": [*trials]},
    )


def note_delivered_offset(cursor: psycopg.Cursor, me: StoreDeliverer, offset: int) -> None:
    """Note that all events before byte `offset` are delivered, if the sweep is elected."""
    cursor.execute(
        f"UPDATE automl_stores SET upto = GREATEST(upto, %(offset)s) WHERE {_STORE} "
        "AND elected = %(sweep)s",
        {**vars(me), "offset": offset},
    )


def forget_runs(cursor: psycopg.Cursor, me: StoreDeliverer, parent: str | None) -> None:
    """Forget all runs, since the store has lost them.

    `parent` was the study's own run; if the table names another one, a sweep has noticed the loss
    before, and nothing is done. Each run may still be there, and is looked for.
    """
    cursor.execute(
        "UPDATE automl_stores SET experiment = NULL, parent = NULL, upto = 0 "
        f"WHERE {_STORE} AND parent = %(parent)s RETURNING study",
        {**vars(me), "parent": parent},
    )
    if cursor.fetchone() is not None:
        cursor.execute(
            f"UPDATE automl_runs SET run = NULL, done = false, files = false WHERE {_STORE}",
            vars(me),
        )


def noted_runs(cursor: psycopg.Cursor, me: StoreDeliverer) -> Mapping[int, tuple[str, bool]]:
    """Return the noted runs by trial number, and whether each has all values of its trial."""
    cursor.execute(
        f"SELECT trial, run, done FROM automl_runs WHERE {_STORE} AND run IS NOT NULL", vars(me)
    )
    return {trial: (run, done) for trial, run, done in cursor}


def pending_files(
    cursor: psycopg.Cursor, me: StoreDeliverer, *, of_others: bool
) -> Sequence[PendingFiles]:
    """Return the runs whose files are not uploaded: those of this sweep's trials, or of all."""
    cursor.execute(
        "SELECT t.number, r.run, t.ended AND r.done, t.sweep = %(sweep)s, d.holder "
        "FROM automl_trials t JOIN automl_runs r ON r.study = t.study AND r.trial = t.number "
        "LEFT JOIN automl_deliverers d ON d.study = t.study AND d.store = r.store "
        "AND d.sweep = t.sweep AND d.lease_until > clock_timestamp() "
        "WHERE t.study = %(study)s AND r.store = %(store)s AND r.run IS NOT NULL "
        "AND NOT r.files AND (%(of_others)s OR t.sweep = %(sweep)s) ORDER BY t.number",
        {**vars(me), "of_others": of_others},
    )
    return [
        PendingFiles(trial, run, due, bool(own), TrialHolder.from_text(holder) if holder else None)
        for trial, run, due, own, holder in cursor
    ]


def undelivered_counts(cursor: psycopg.Cursor, me: StoreDeliverer) -> UndeliveredCounts:
    """Return what any sweep still has to deliver to the store."""
    cursor.execute(
        "SELECT count(*) FILTER (WHERE NOT t.ended), count(*) FILTER (WHERE t.ended), "
        "count(*) FILTER (WHERE t.ended AND t.sweep = %(sweep)s), "
        f"COALESCE((SELECT upto FROM automl_stores WHERE {_STORE}), 0) FROM automl_trials t "
        "LEFT JOIN automl_runs r ON r.study = t.study AND r.store = %(store)s "
        "AND r.trial = t.number WHERE t.study = %(study)s "
        "AND NOT COALESCE(t.ended AND r.done AND r.files, false)",
        vars(me),
    )
    (row,) = cursor.fetchall()
    return UndeliveredCounts(*row)
