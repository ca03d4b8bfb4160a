"""The tables that divide the delivery of a shared study to MLflow among its sweeps, and their SQL.

Each sweep delivers the trials that it holds, whose checkpoints are on its disk. One of the sweeps
that deliver to a store is elected: it delivers the study's own values, and the trials that no other
of them holds.

The first run that is noted for a trial (`note_run`) counts, whatever the leases say; a sweep that
comes second deletes its own run. `claim_deliveries` notes that a run is about to be made. If its
maker dies in between, the run is looked for; where nobody can have made a run, it is made without a
search.

Talking to MLflow is done in `automl.tracking`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import psycopg

from automl.record.lease import HOLDER_LEASE_SECONDS, TrialHolder

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
_LEASE = f"clock_timestamp() + interval '{HOLDER_LEASE_SECONDS} seconds'"
_IS_UNATTENDED = (
    "(t.sweep IS NULL OR NOT EXISTS (SELECT FROM automl_deliverers d WHERE d.study = t.study "
    "AND d.store = %(store)s AND d.sweep = t.sweep AND d.lease_until > clock_timestamp() "
    "AND d.sweep <> ALL(%(gone)s)))"
)
"""Condition on a trial `t`: no sweep that delivers to the store holds it."""
_RUN = "LEFT JOIN automl_runs r ON r.study = t.study AND r.store = %(store)s AND r.trial = t.number"


@dataclass(frozen=True)
class StoreDeliverer:
    """A sweep that delivers a study to one store of MLflow."""

    study: int
    store: str
    sweep: str


@dataclass(frozen=True)
class DeliveryStanding:
    """The state of the delivery to a store, as one deliverer sees it."""

    elected: bool
    """Whether this sweep delivers the study's own values, and trials that nobody holds."""
    experiment: str | None
    parent: str | None
    """The study's own run in MLflow; None: it has none yet."""
    upto: int
    """The study's own values are delivered up to this byte of `events.log`; all sweeps have copies
    of it with the same bytes."""


@dataclass(frozen=True)
class ClaimedTrialRun:
    """A trial whose run a sweep may write now."""

    number: int
    run: str | None
    """The run that is noted for the trial; None: no run is noted."""
    fresh: bool
    """No sweep can have made a run of the trial yet."""
    held: bool
    """This sweep holds the trial; else the trial is only left to it."""


@dataclass(frozen=True)
class UndeliveredCounts:
    """The work that remains for the delivery of a study to a store."""

    n_open: int
    """The number of trials that have not ended."""
    n_ended: int
    """The number of trials that have ended, and whose runs have not."""
    upto: int
    """The study's own values are delivered up to this byte, as in `DeliveryStanding`."""


def attend_delivery(cursor: psycopg.Cursor, me: StoreDeliverer, holder: TrialHolder) -> None:
    """Register the sweep as a deliverer for the time of a lease.

    A new term begins where the last lease has ended.
    """
    cursor.execute(
        "INSERT INTO automl_deliverers AS d (study, store, sweep, holder, lease_until) "
        f"VALUES (%s, %s, %s, %s, {_LEASE}) ON CONFLICT (study, store, sweep) DO UPDATE "
        "SET holder = excluded.holder, lease_until = excluded.lease_until, "
        "term = d.term + (d.lease_until <= clock_timestamp())::int",
        (me.study, me.store, me.sweep, holder.text()),
    )


def delivery_term(cursor: psycopg.Cursor, me: StoreDeliverer) -> int | None:
    """Return the number of the sweep's current term; None: its lease has ended."""
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
    """Return the state of the delivery, after electing this sweep if there is no elected one.

    An elected sweep counts only while its lease lasts and it is not among `gone`.
    """
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


def other_deliverers(
    cursor: psycopg.Cursor, me: StoreDeliverer
) -> Iterator[tuple[str, TrialHolder]]:
    """Return the other deliverers of the store whose leases last, with their processes."""
    cursor.execute(
        "SELECT sweep, holder FROM automl_deliverers WHERE study = %s AND store = %s "
        "AND sweep <> %s AND lease_until > clock_timestamp()",
        (me.study, me.store, me.sweep),
    )
    return ((sweep, TrialHolder.from_text(holder)) for sweep, holder in cursor.fetchall())


def resign_as_deliverer(cursor: psycopg.Cursor, study: int, sweep: str) -> None:
    """Remove the sweep as a deliverer: the rest is left to the others."""
    cursor.execute("DELETE FROM automl_deliverers WHERE study = %s AND sweep = %s", (study, sweep))


def claim_deliveries(
    cursor: psycopg.Cursor, me: StoreDeliverer, numbers: Collection[int], gone: Collection[str]
) -> list[ClaimedTrialRun]:
    """Return which of the trials this sweep may deliver now.

    The table notes that their runs may be made from now on.
    """
    cursor.execute(
        "SELECT t.number, r.run, r.trial IS NULL, t.sweep IS NOT DISTINCT FROM %(sweep)s "
        f"FROM automl_trials t {_RUN} WHERE t.study = %(study)s AND t.number = ANY(%(numbers)s) "
        f"AND NOT COALESCE(r.done, false) AND (t.sweep = %(sweep)s OR {_IS_UNATTENDED} "
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
        "UPDATE automl_stores SET experiment = COALESCE(experiment, %s), "
        "parent = COALESCE(parent, %s) WHERE study = %s AND store = %s RETURNING parent",
        (experiment, parent, me.study, me.store),
    )
    ((kept,),) = cursor.fetchall()
    return str(kept)


def note_delivered(cursor: psycopg.Cursor, me: StoreDeliverer, trials: Collection[int]) -> None:
    """Note that the store has everything of these trials."""
    cursor.execute(
        "UPDATE automl_runs SET done = true WHERE study = %s AND store = %s AND trial = ANY(%s)",
        (me.study, me.store, [*trials]),
    )


def note_delivered_offset(cursor: psycopg.Cursor, me: StoreDeliverer, offset: int) -> None:
    """Note that the study's own values are delivered up to byte `offset`.

    It does nothing if the sweep is not elected.
    """
    cursor.execute(
        "UPDATE automl_stores SET upto = GREATEST(upto, %s) WHERE study = %s AND store = %s "
        "AND elected = %s",
        (offset, me.study, me.store, me.sweep),
    )


def forget_runs(cursor: psycopg.Cursor, me: StoreDeliverer, parent: str | None) -> None:
    """Forget all runs, since the store has lost them.

    `parent` was the study's own run; if the table names another one, a sweep has noticed the loss
    before, and nothing is done. Each run may still be there, and is looked for.
    """
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


def noted_runs(cursor: psycopg.Cursor, me: StoreDeliverer) -> dict[int, str]:
    """Return all noted runs by trial number."""
    cursor.execute(
        "SELECT trial, run FROM automl_runs WHERE study = %s AND store = %s AND run IS NOT NULL",
        (me.study, me.store),
    )
    return dict(cursor.fetchall())


def undelivered_trials(
    cursor: psycopg.Cursor, me: StoreDeliverer, gone: Collection[str]
) -> list[int]:
    """Return ended trials that are not delivered, and that no deliverer of the store holds."""
    cursor.execute(
        f"SELECT t.number FROM automl_trials t {_RUN} WHERE t.study = %(study)s AND t.ended "
        f"AND NOT COALESCE(r.done, false) AND {_IS_UNATTENDED}",
        {**vars(me), "gone": [*gone]},
    )
    return [number for (number,) in cursor]


def undelivered_counts(cursor: psycopg.Cursor, me: StoreDeliverer) -> UndeliveredCounts:
    """Return what any sweep still has to deliver to the store."""
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
