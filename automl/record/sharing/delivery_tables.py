"""Who delivers a shared study to MLflow, and which run each trial has there: tables and statements.

Each sweep delivers the trials that it holds, whose checkpoints are on its disk. One of those that
deliver to a store is elected: it delivers what no other of them holds, and the study's own values.

A run is noted by whoever is first (`note_run`), and that one counts, whatever the leases say: who
comes second deletes its own. That a run is about to be made is written down before (`claim`), so
that it is looked for where its maker died in between, and is made without a search where nobody can
have made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import psycopg

from automl.record.lease import LEASE_SECONDS, TrialHolder

TABLES = """
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
    term int NOT NULL DEFAULT 1,
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
_LEASE = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
_OF_NOBODY = (
    "(t.sweep IS NULL OR NOT EXISTS (SELECT FROM automl_deliverers d WHERE d.study = t.study "
    "AND d.store = %(store)s AND d.sweep = t.sweep AND d.lease_until > clock_timestamp() "
    "AND d.sweep <> ALL(%(gone)s)))"
)
"""Of a trial `t`: none of those that deliver to the store holds it."""
_RUN = "LEFT JOIN automl_runs r ON r.study = t.study AND r.store = %(store)s AND r.trial = t.number"


@dataclass(frozen=True)
class StoreDeliverer:
    """A sweep that delivers a study to one store of MLflow."""

    study: int
    store: str
    sweep: str


@dataclass(frozen=True)
class DeliveryStanding:
    """How the delivery to a store stands."""

    elected: bool
    """Whether it is this sweep that delivers the study's own values, and what is nobody's."""
    experiment: str | None
    parent: str | None
    """The study's own run."""
    upto: int
    """The elected have delivered the study's own values up to this byte of `events.log`, of which
    every sweep has a copy with the same bytes."""


@dataclass(frozen=True)
class ClaimedTrialRun:
    """What is to be known of a trial before its run is written."""

    number: int
    run: str | None
    """None: nobody has noted one."""
    fresh: bool
    """Nobody can have made one."""
    held: bool
    """By this sweep, and not only left to it."""


@dataclass(frozen=True)
class UndeliveredCounts:
    """What of a study is still to be delivered to a store."""

    n_open: int
    """Trials that have not ended."""
    n_ended: int
    """Trials that have ended, and whose runs have not."""
    upto: int
    """See `DeliveryStanding`."""


def attend_delivery(cursor: psycopg.Cursor, me: StoreDeliverer, holder: TrialHolder) -> None:
    """Deliver for the time of a lease from now on: a new term, where the last lease has ended."""
    cursor.execute(
        "INSERT INTO automl_deliverers AS d (study, store, sweep, holder, lease_until) "
        f"VALUES (%s, %s, %s, %s, {_LEASE}) ON CONFLICT (study, store, sweep) DO UPDATE "
        "SET holder = excluded.holder, lease_until = excluded.lease_until, "
        "term = d.term + (d.lease_until <= clock_timestamp())::int",
        (me.study, me.store, me.sweep, holder.text()),
    )


def elect_deliverer(cursor: psycopg.Cursor, me: StoreDeliverer) -> int | None:
    """Which one it is; None: the lease has ended."""
    cursor.execute(
        "SELECT term FROM automl_deliverers WHERE study = %s AND store = %s AND sweep = %s "
        "AND lease_until > clock_timestamp()",
        (me.study, me.store, me.sweep),
    )
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def delivery_standing(
    cursor: psycopg.Cursor, me: StoreDeliverer, gone: Collection[str]
) -> DeliveryStanding:
    """Be elected, where nobody is who lives and is not `gone`; how the delivery stands."""
    cursor.execute(
        "INSERT INTO automl_stores (study, store) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (me.study, me.store),
    )
    cursor.execute(
        "UPDATE automl_stores s SET elected = %s WHERE study = %s AND store = %s "
        "AND elected IS DISTINCT FROM %s AND NOT EXISTS (SELECT FROM automl_deliverers d "
        "WHERE d.study = s.study AND d.store = s.store AND d.sweep = s.elected "
        "AND d.lease_until > clock_timestamp() AND d.sweep <> ALL(%s))",
        (me.sweep, me.study, me.store, me.sweep, [*gone]),
    )
    cursor.execute(
        "SELECT elected = %s, experiment, parent, upto FROM automl_stores "
        "WHERE study = %s AND store = %s",
        (me.sweep, me.study, me.store),
    )
    (row,) = cursor.fetchall()
    return DeliveryStanding(*row)


def deliverers(cursor: psycopg.Cursor, me: StoreDeliverer) -> Iterator[tuple[str, TrialHolder]]:
    """The others of the store whose leases have not ended, and their processes."""
    cursor.execute(
        "SELECT sweep, holder FROM automl_deliverers WHERE study = %s AND store = %s "
        "AND sweep <> %s AND lease_until > clock_timestamp()",
        (me.study, me.store, me.sweep),
    )
    return ((sweep, TrialHolder.from_text(holder)) for sweep, holder in cursor.fetchall())


def resign(cursor: psycopg.Cursor, study: int, sweep: str) -> None:
    """What the sweep has not delivered is the others'."""
    cursor.execute("DELETE FROM automl_deliverers WHERE study = %s AND sweep = %s", (study, sweep))


def claim(
    cursor: psycopg.Cursor, me: StoreDeliverer, numbers: Collection[int], gone: Collection[str]
) -> list[ClaimedTrialRun]:
    """Those of these trials that are the sweep's to deliver now; that their runs may be made from
    now on is written down."""
    cursor.execute(
        "SELECT t.number, r.run, r.trial IS NULL, t.sweep IS NOT DISTINCT FROM %(sweep)s "
        f"FROM automl_trials t {_RUN} WHERE t.study = %(study)s AND t.number = ANY(%(numbers)s) "
        f"AND NOT COALESCE(r.done, false) AND (t.sweep = %(sweep)s OR {_OF_NOBODY} "
        "AND EXISTS (SELECT FROM automl_stores s WHERE s.study = t.study "
        "AND s.store = %(store)s AND s.elected = %(sweep)s)) ORDER BY t.number",
        {**vars(me), "numbers": [*numbers], "gone": [*gone]},
    )
    claimed = [ClaimedTrialRun(*row) for row in cursor]
    if new := [each.number for each in claimed if each.fresh]:
        cursor.execute(
            "INSERT INTO automl_runs (study, store, trial) SELECT %s, %s, unnest(%s::int[]) "
            "ON CONFLICT DO NOTHING RETURNING trial",
            (me.study, me.store, new),
        )
        ours = {number for (number,) in cursor}
        claimed = [
            ClaimedTrialRun(each.number, each.run, each.number in ours, each.held)
            for each in claimed
        ]
    return claimed


def note_run(cursor: psycopg.Cursor, me: StoreDeliverer, trial: int, run: str) -> str:
    """The run that the trial has from now on: this one, if it has none."""
    cursor.execute(
        "INSERT INTO automl_runs AS r (study, store, trial, run) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (study, store, trial) DO UPDATE SET run = COALESCE(r.run, excluded.run) "
        "RETURNING run",
        (me.study, me.store, trial, run),
    )
    ((kept,),) = cursor.fetchall()
    return str(kept)


def note_parent(cursor: psycopg.Cursor, me: StoreDeliverer, experiment: str, parent: str) -> str:
    """The study's own run from now on: this one, if it has none."""
    cursor.execute(
        "UPDATE automl_stores SET experiment = COALESCE(experiment, %s), "
        "parent = COALESCE(parent, %s) WHERE study = %s AND store = %s RETURNING parent",
        (experiment, parent, me.study, me.store),
    )
    ((kept,),) = cursor.fetchall()
    return str(kept)


def note_done(cursor: psycopg.Cursor, me: StoreDeliverer, trials: Collection[int]) -> None:
    """The store has all of these trials."""
    cursor.execute(
        "UPDATE automl_runs SET done = true WHERE study = %s AND store = %s AND trial = ANY(%s)",
        (me.study, me.store, [*trials]),
    )


def note_upto(cursor: psycopg.Cursor, me: StoreDeliverer, offset: int) -> None:
    """The store has the study's own values up to that byte, if the sweep is elected."""
    cursor.execute(
        "UPDATE automl_stores SET upto = GREATEST(upto, %s) WHERE study = %s AND store = %s "
        "AND elected = %s",
        (offset, me.study, me.store, me.sweep),
    )


def forget_runs(cursor: psycopg.Cursor, me: StoreDeliverer, parent: str | None) -> None:
    """They are gone from the store, unless somebody has found that out before; `parent` is what the
    study's own run was. Each may still be there, and is looked for."""
    cursor.execute(
        "UPDATE automl_stores SET experiment = NULL, parent = NULL, upto = 0 "
        "WHERE study = %s AND store = %s AND parent = %s RETURNING study",
        (me.study, me.store, parent),
    )
    if cursor.fetchone() is not None:
        cursor.execute(
            "UPDATE automl_runs SET run = NULL, done = false WHERE study = %s AND store = %s",
            (me.study, me.store),
        )


def runs(cursor: psycopg.Cursor, me: StoreDeliverer) -> dict[int, str]:
    """All that are noted, by trial."""
    cursor.execute(
        "SELECT trial, run FROM automl_runs WHERE study = %s AND store = %s AND run IS NOT NULL",
        (me.study, me.store),
    )
    return dict(cursor.fetchall())


def undelivered_trials(
    cursor: psycopg.Cursor, me: StoreDeliverer, gone: Collection[str]
) -> list[int]:
    """Trials that have ended, are not delivered, and that none of those who deliver holds."""
    cursor.execute(
        f"SELECT t.number FROM automl_trials t {_RUN} WHERE t.study = %(study)s AND t.ended "
        f"AND NOT COALESCE(r.done, false) AND {_OF_NOBODY}",
        {**vars(me), "gone": [*gone]},
    )
    return [number for (number,) in cursor]


def undelivered_counts(cursor: psycopg.Cursor, me: StoreDeliverer) -> UndeliveredCounts:
    """What is still to be delivered, by whomever."""
    cursor.execute(
        "SELECT count(*) FILTER (WHERE NOT t.ended), "
        "count(*) FILTER (WHERE t.ended AND NOT COALESCE(r.done, false)) "
        f"FROM automl_trials t {_RUN} WHERE t.study = %(study)s",
        vars(me),
    )
    (counts,) = cursor.fetchall()
    cursor.execute(
        "SELECT upto FROM automl_stores WHERE study = %s AND store = %s", (me.study, me.store)
    )
    (row,) = cursor.fetchall()
    return UndeliveredCounts(*counts, *row)
