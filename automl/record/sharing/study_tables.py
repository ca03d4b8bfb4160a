"""The tables of shared studies and their SQL; each function is a transaction or a part of one.

A transaction that counts or orders takes the study's advisory lock first, so that these happen one
after another. Trials therefore have consecutive numbers and are never more than `n_trials`; events
have consecutive places, and the events of an attempt stand before those of the next. A statement
after the lock sees everything that was committed before it, since each has a snapshot of its own.

An attempt is the fencing token of a trial: it is taken with the lease, raised when a sweep takes
the trial over, and compared under the lock when events come in.

An edit of the study is an event, and is counted: a trial is made only by a sweep that knows all
edits, so that trials from the edit's `n_trials` on are of the edited space.

The tables of the delivery to MLflow are in `delivery_tables.py`, the statements for requests and
edits in `shared_requests.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from automl.errors import ConfigError
from automl.record.event_log import UnreadableLineError, decode_event
from automl.record.lease import HOLDER_LEASE_SECONDS, TrialHolder
from automl.record.sharing import delivery_tables
from automl.trial import StudyEdited

VERSION = 5
"""Version 5 has the tables of version 4, in which stores of MLflow were named by their addresses: a
sweep of that version would deliver to a store beside others, and trials would have two runs."""
_LOCKS = 0x6175746D  # "autm"; differs from the advisory locks of other programs

_TABLES = """
CREATE TABLE IF NOT EXISTS automl_version (version int NOT NULL);
CREATE TABLE IF NOT EXISTS automl_studies (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    uuid text NOT NULL,
    identity text NOT NULL,
    config text NOT NULL,
    n_trials int NOT NULL,
    n_asked int NOT NULL DEFAULT 0,
    n_events bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS automl_sweeps (
    sweep text PRIMARY KEY,
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    holder text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    shipped bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS automl_trials (
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    number int NOT NULL,
    params text NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    sweep text,
    lease_until timestamptz NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    PRIMARY KEY (study, number)
);
CREATE INDEX IF NOT EXISTS automl_trials_open ON automl_trials (study, number) WHERE NOT ended;
CREATE TABLE IF NOT EXISTS automl_events (
    study int NOT NULL,
    place bigint NOT NULL,
    sweep text NOT NULL,
    byte_offset bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (study, place),
    UNIQUE (sweep, byte_offset)
);
"""

_UPGRADE_FROM_3 = """
ALTER TABLE automl_studies ADD COLUMN n_edits int NOT NULL DEFAULT 0, ADD COLUMN owner text;
ALTER TABLE automl_studies ALTER COLUMN owner SET DEFAULT session_user;
ALTER TABLE automl_sweeps ADD COLUMN lease_until timestamptz NOT NULL DEFAULT '-infinity';
ALTER TABLE automl_trials ADD COLUMN request text;
CREATE TABLE automl_requests (
    study int NOT NULL REFERENCES automl_studies ON DELETE CASCADE,
    id text NOT NULL,
    body text NOT NULL,
    role text NOT NULL DEFAULT session_user,
    written timestamptz NOT NULL DEFAULT clock_timestamp(),
    answers jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (study, id)
);
CREATE INDEX automl_events_edits ON automl_events (study, place) WHERE byte_offset = 0;
"""
"""Makes tables of version 4 of those of version 3, which did not know who had begun a study."""

LEASE_END = f"clock_timestamp() + interval '{HOLDER_LEASE_SECONDS} seconds'"


@dataclass(frozen=True)
class StoredStudy:
    """A study as it is stored in the database."""

    id: int
    name: str
    uuid: str
    identity: Mapping[str, Any]
    config: str
    n_trials: int
    n_asked: int
    n_events: int
    n_edits: int


class StoredTrial(NamedTuple):
    """A trial as the database has it."""

    number: int
    params: Mapping[str, Any]
    request: str | None = None
    """The request of a user's point; None: a sampler proposed the trial."""


@dataclass(frozen=True)
class OpenTrial:
    """A trial that has not ended, with the sweep that holds it."""

    number: int
    sweep: str | None
    """The sweep that holds the trial; None: it was given back."""
    lapsed: bool
    holder: TrialHolder | None


@dataclass(frozen=True)
class StoredEvent:
    """A line of the table of events, which is also a line of `events.log`."""

    sweep: str
    line: bytes


def make_tables(cursor: psycopg.Cursor, where: str) -> None:
    """Make the tables if they are missing. Raises ConfigError for tables of another version."""
    version = _tables_version(cursor) if has_tables(cursor) else None
    if version in (None, 2, 3, 4):
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCKS,))
        cursor.execute(_TABLES)
        cursor.execute(delivery_tables.DELIVERY_TABLES)
        version = _tables_version(cursor)  # another sweep may have had the lock
        if version in (None, 2):
            cursor.execute(delivery_tables.UPGRADE_FROM_2)
        if version in (None, 2, 3):
            cursor.execute(_UPGRADE_FROM_3)
        if version in (None, 2, 3, 4):
            cursor.execute("DELETE FROM automl_version")
            cursor.execute("INSERT INTO automl_version VALUES (%s)", (VERSION,))
            version = VERSION
    if version != VERSION:
        raise ConfigError(
            f"study.storage={where}: its tables are of version {version} of automl's, and this "
            f"automl knows version {VERSION}. Use the automl that made them on every machine, or "
            "name another database."
        )


def _tables_version(cursor: psycopg.Cursor) -> int | None:
    cursor.execute("SELECT max(version) FROM automl_version")
    version: int | None = single_row(cursor)[0]
    return version


def has_tables(cursor: psycopg.Cursor) -> bool:
    """Return whether the database has our tables."""
    cursor.execute("SELECT to_regclass('automl_version')")
    return single_row(cursor)[0] is not None


def find_study(cursor: psycopg.Cursor, name: str) -> StoredStudy | None:
    """Return the study of that name; None: there is none."""
    cursor.execute(
        "SELECT id, name, uuid, identity, config, n_trials, n_asked, n_events, n_edits "
        "FROM automl_studies WHERE name = %s",
        (name,),
    )
    row = cursor.fetchone()
    if row is None:
        return None
    study, name, uuid, identity, *rest = row
    return StoredStudy(study, name, uuid, json.loads(identity), *rest)


def study_names(cursor: psycopg.Cursor) -> list[str]:
    """Return the names of all studies in the database, sorted."""
    cursor.execute("SELECT name FROM automl_studies ORDER BY name")
    return [str(row[0]) for row in cursor]


def add_study(
    cursor: psycopg.Cursor,
    name: str,
    uuid: str,
    identity: Mapping[str, Any],
    config: str,
    n_trials: int,
) -> None:
    """Add a study, unless another sweep has added it before."""
    cursor.execute(
        "INSERT INTO automl_studies (name, uuid, identity, config, n_trials) "
        "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING",
        (name, uuid, json.dumps(identity), config, n_trials),
    )


def delete_study(cursor: psycopg.Cursor, study: int) -> None:
    """Delete a study with everything that the database has of it."""
    cursor.execute("DELETE FROM automl_events WHERE study = %s", (study,))
    cursor.execute("DELETE FROM automl_studies WHERE id = %s", (study,))


def raise_n_trials(cursor: psycopg.Cursor, study: int, n_trials: int) -> None:
    """Raise the number of trials of the study; never lower it, since others may count on it."""
    cursor.execute(
        "UPDATE automl_studies SET n_trials = %s WHERE id = %s AND n_trials < %s",
        (n_trials, study, n_trials),
    )


def add_sweep(cursor: psycopg.Cursor, study: int, sweep: str, holder: TrialHolder) -> None:
    """Add a sweep that begins; one whose log is shipped by a later sweep is there already."""
    cursor.execute(
        "INSERT INTO automl_sweeps (sweep, study, holder) VALUES (%s, %s, %s) "
        "ON CONFLICT (sweep) DO NOTHING",
        (sweep, study, holder.text()),
    )


def is_sweep_of_study(cursor: psycopg.Cursor, study: int, sweep: str) -> bool:
    """Return whether `sweep` is a sweep of the study."""
    cursor.execute("SELECT FROM automl_sweeps WHERE sweep = %s AND study = %s", (sweep, study))
    return cursor.fetchone() is not None


def count_trials_and_edits(cursor: psycopg.Cursor, study: int) -> tuple[int, int]:
    """Return the number of trials that the study has, and of its edits."""
    cursor.execute("SELECT n_asked, n_edits FROM automl_studies WHERE id = %s", (study,))
    n_asked, n_edits = single_row(cursor)
    return n_asked, n_edits


# --- trials ---


def lock_study(cursor: psycopg.Cursor, study: int) -> None:
    """Take the study's advisory lock until the end of the transaction."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_LOCKS, study))


def read_as_of_now(cursor: psycopg.Cursor) -> None:
    """Have all statements of the transaction see the same moment; it has had none before."""
    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def claim_trial(
    cursor: psycopg.Cursor, study: int, sweep: str, trial: StoredTrial, n_edits: int = 0
) -> None:
    """Make the trial, if it is the next one, the study wants more trials and has `n_edits`.

    The cursor has a row if it was made. It is one statement, sent after the lock was taken.
    """
    cursor.execute(
        "WITH more AS (UPDATE automl_studies SET n_asked = n_asked + 1 "
        "WHERE id = %s AND n_asked = %s AND n_asked < n_trials AND n_edits = %s RETURNING id) "
        "INSERT INTO automl_trials (study, number, params, request, sweep, lease_until) "
        f"SELECT id, %s, %s, %s, %s, {LEASE_END} FROM more RETURNING number",
        (
            *(study, trial.number, n_edits),
            *(trial.number, json.dumps(trial.params), trial.request, sweep),
        ),
    )


def take_over_trial(
    cursor: psycopg.Cursor,
    study: int,
    sweep: str,
    gone: Collection[str],
    excluded: Collection[int],
    unconfirmed: Collection[int] = (),
) -> tuple[int, int] | None:
    """Take over a trial, and return its number and new attempt; None: there is none to take.

    A trial may be taken when its holder gave it back, lost its lease or is among `gone`, or when
    the sweep itself holds it without knowing (`unconfirmed`). Trials in `excluded` are never taken,
    nor is one whose row another transaction is changing: its holder may be renewing the lease.
    """
    lock_study(cursor, study)
    cursor.execute(
        f"UPDATE automl_trials SET attempt = attempt + 1, sweep = %s, lease_until = {LEASE_END} "
        "WHERE study = %s AND number = (SELECT number FROM automl_trials "
        "WHERE study = %s AND NOT ended AND number <> ALL(%s) "
        "AND (sweep IS NULL OR lease_until < clock_timestamp() OR sweep = ANY(%s) "
        "OR (sweep = %s AND number = ANY(%s))) "
        "ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING number, attempt",
        (sweep, study, study, [*excluded], [*gone], sweep, [*unconfirmed]),
    )
    row = cursor.fetchone()
    return None if row is None else (row[0], row[1])


def renew_trial_leases(
    cursor: psycopg.Cursor, study: int, sweep: str, held: Collection[int]
) -> Mapping[int, int]:
    """Renew the leases of the trials that the sweep still has; return their attempts by number."""
    cursor.execute(
        f"UPDATE automl_trials SET lease_until = {LEASE_END} WHERE study = %s AND sweep = %s "
        "AND NOT ended AND number = ANY(%s) RETURNING number, attempt",
        (study, sweep, [*held]),
    )
    return dict(cursor.fetchall())


def give_back_trials(cursor: psycopg.Cursor, study: int, sweep: str) -> None:
    """Give back all trials that the sweep holds and that have not ended."""
    cursor.execute(
        "UPDATE automl_trials SET sweep = NULL WHERE study = %s AND sweep = %s AND NOT ended",
        (study, sweep),
    )


def trials_from(cursor: psycopg.Cursor, study: int, number: int) -> Sequence[StoredTrial]:
    """Return each trial from `number` on."""
    cursor.execute(
        "SELECT number, params, request FROM automl_trials WHERE study = %s AND number >= %s "
        "ORDER BY number",
        (study, number),
    )
    return [StoredTrial(number, json.loads(params), request) for number, params, request in cursor]


def open_trials(cursor: psycopg.Cursor, study: int) -> Sequence[OpenTrial]:
    """Return the trials that have not ended, in order of their numbers."""
    cursor.execute(
        "SELECT t.number, t.sweep, t.lease_until < clock_timestamp(), s.holder "
        "FROM automl_trials t LEFT JOIN automl_sweeps s ON s.sweep = t.sweep "
        "WHERE t.study = %s AND NOT t.ended ORDER BY t.number",
        (study,),
    )
    return [
        OpenTrial(number, sweep, lapsed, None if holder is None else TrialHolder.from_text(holder))
        for number, sweep, lapsed, holder in cursor
    ]


# --- events ---


def shipped_offset(cursor: psycopg.Cursor, sweep: str) -> int:
    """Return the byte of the sweep's own log up to which the database has taken or refused
    lines."""
    cursor.execute("SELECT shipped FROM automl_sweeps WHERE sweep = %s", (sweep,))
    return int(single_row(cursor)[0])


def current_attempts(
    cursor: psycopg.Cursor, study: int, numbers: Collection[int]
) -> Mapping[int, int | None]:
    """Return the current attempt of each of the trials; None: it has ended."""
    cursor.execute(
        "SELECT number, attempt, ended FROM automl_trials WHERE study = %s AND number = ANY(%s)",
        (study, [*numbers]),
    )
    return {number: None if ended else attempt for number, attempt, ended in cursor}


def add_events(
    cursor: psycopg.Cursor, study: int, sweep: str, lines: Sequence[tuple[int, str]]
) -> None:
    """Add event lines in order, each with the offset after it in the sweep's own log."""
    cursor.execute(
        "WITH before AS (UPDATE automl_studies SET n_events = n_events + %s WHERE id = %s "
        "RETURNING n_events - %s AS n) "
        "INSERT INTO automl_events (study, place, sweep, byte_offset, line) "
        "SELECT %s, before.n + l.nth, %s, l.byte_offset, l.line FROM before, "
        "unnest(%s::bigint[], %s::text[]) WITH ORDINALITY AS l(byte_offset, line, nth)",
        (
            *(len(lines), study, len(lines), study, sweep),
            [offset for offset, _ in lines],
            [line for _, line in lines],
        ),
    )


def end_trials(cursor: psycopg.Cursor, study: int, numbers: Collection[int]) -> None:
    """Mark trials as ended, whose last events are in the table."""
    cursor.execute(
        "UPDATE automl_trials SET ended = true WHERE study = %s AND number = ANY(%s)",
        (study, [*numbers]),
    )


def set_shipped_offset(cursor: psycopg.Cursor, sweep: str, offset: int) -> None:
    """Note that all lines of the sweep's log up to byte `offset` were taken or refused."""
    cursor.execute("UPDATE automl_sweeps SET shipped = %s WHERE sweep = %s", (offset, sweep))


def events_after(
    cursor: psycopg.Cursor, study: int, place: int, limit: int
) -> Sequence[StoredEvent]:
    """Return the events after `place` in order, at most `limit`."""
    cursor.execute(
        "SELECT sweep, line FROM automl_events WHERE study = %s AND place > %s "
        "ORDER BY place LIMIT %s",
        (study, place, limit),
    )
    return [StoredEvent(sweep, _one_line(line)) for sweep, line in cursor]


def find_edits(cursor: psycopg.Cursor, study: int) -> tuple[StudyEdited, ...]:
    """Return the edits of the study in order."""
    cursor.execute(
        "SELECT line FROM automl_events WHERE study = %s AND byte_offset = 0 ORDER BY place",
        (study,),
    )
    edits = []
    for (line,) in cursor:
        with suppress(UnreadableLineError):  # one of another version, as in the log's copy
            edits.append(decode_event(_one_line(line)))
    return tuple(edit for edit in edits if isinstance(edit, StudyEdited))


def _one_line(line: str) -> bytes:
    """Return the text as one line of ASCII; a stranger may have written it."""
    return line.encode("ascii", "replace").replace(b"\n", b"?") + b"\n"


def single_row(cursor: psycopg.Cursor) -> tuple[Any, ...]:
    """Return the one row of a query."""
    row = cursor.fetchone()
    assert row is not None, "the query has a row"
    return row
