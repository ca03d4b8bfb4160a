"""Requests to the sweeps of a shared study, and its edits: rows of the database.

A sweep reads the requests with its look at the database, once a second, and writes its answers when
it ships its events. Each sweep at work answers a request that it carries out for itself (a pause);
every other request has one answer, the first that is written. Sweeps at work renew a lease of their
own.

Roles of the database are its users: what another role wrote than the one that began the study is
ignored. An edit is an event that no sweep's own log has: its id stands in the place of a sweep, so
that no edit is there twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import psycopg

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import encode_event
from automl.record.lease import TrialHolder, this_boot
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.study_fetch import find_stored_study
from automl.record.sharing.study_tables import LEASE_END, StoredStudy
from automl.record.study_requests import (
    MAX_REQUEST_BYTES,
    STALE_SECONDS,
    RequestAnswer,
    RequestQueue,
    StudyRequest,
    make_request,
)
from automl.trial import StudyEdited

_FOR_ALL = ""
"""Key of an answer that no other sweep has to add to."""

logger = logging.getLogger(__name__)


def renew_sweep_lease(cursor: psycopg.Cursor, sweep: str) -> None:
    """Note that the sweep is at work, and answers requests."""
    cursor.execute(f"UPDATE automl_sweeps SET lease_until = {LEASE_END} WHERE sweep = %s", (sweep,))


def end_sweep_lease(cursor: psycopg.Cursor, sweep: str) -> None:
    """Note that the sweep no longer answers requests."""
    cursor.execute("UPDATE automl_sweeps SET lease_until = '-infinity' WHERE sweep = %s", (sweep,))


def add_edit(
    cursor: psycopg.Cursor,
    study: int,
    edit: StudyEdited,
    *,
    n_edits: int,
    n_trials: int | None,
) -> bool:
    """Add the event of an edit, if the study has `n_edits` and the edit's number of trials.

    `n_trials` is the total from now on; None: it stays. It is one statement, sent after the lock
    was taken. False: the edit was composed from settings that no longer hold.
    """
    line = encode_event(edit).decode("ascii").rstrip("\n")
    cursor.execute(
        "WITH edited AS (UPDATE automl_studies SET n_edits = n_edits + 1, n_events = n_events + 1, "
        "n_trials = coalesce(%s, n_trials) WHERE id = %s AND n_edits = %s AND n_asked = %s "
        "RETURNING id, n_events) "
        "INSERT INTO automl_events (study, place, sweep, byte_offset, line) "
        "SELECT id, n_events, %s, 0, %s FROM edited RETURNING place",
        (n_trials, study, n_edits, edit.n_trials, edit.id, line),
    )
    return cursor.fetchone() is not None


def record_edit(
    study: StudyConfig, edit: StudyEdited, *, n_edits: int, n_trials: int | None
) -> bool:
    """Record an edit for a command, as `add_edit` does. Raises AutoMLError."""
    assert study.storage is not None
    assert study.name is not None
    with Database(study.storage) as database:
        stored = find_stored_study(database, study.name)
        with database.transaction() as cursor:
            study_tables.lock_study(cursor, stored.id)
            return add_edit(cursor, stored.id, edit, n_edits=n_edits, n_trials=n_trials)


def _sweeps_at_work(
    cursor: psycopg.Cursor, study: int, written: float | None = None
) -> Mapping[str, str]:
    """Return the machines of the sweeps at work, by the sweep; `written`: that were so then."""
    cursor.execute(
        "SELECT sweep, holder FROM automl_sweeps WHERE study = %s "
        "AND lease_until > clock_timestamp() AND since <= coalesce(to_timestamp(%s), since)",
        (study, written),
    )
    here = this_boot()
    holders = {sweep: TrialHolder.from_text(holder) for sweep, holder in cursor}
    return {sweep: h.host for sweep, h in holders.items() if not h.is_gone(here)}


class SharedRequestQueue(RequestQueue):
    """Requests as rows of the study's database, for commands; sweeps have `SweepRequestQueue`."""

    poll_seconds = 0.1
    _sweep = _FOR_ALL

    def __init__(self, database: Database, study: StoredStudy) -> None:
        self._database, self._study = database, study
        self._ignored: set[str] = set()
        """Ids of requests that are none of the study's owner, each logged once."""

    @classmethod
    def open(cls, study: StudyConfig) -> SharedRequestQueue:
        """Connect to the database. Raises ConfigError where it cannot be used or lacks the study,
        and StorageError."""
        assert study.storage is not None
        assert study.name is not None
        database = Database(study.storage)
        try:
            database.check()
            return cls(database, find_stored_study(database, study.name))
        except BaseException:
            database.close()
            raise

    def write(self, kind: str, arguments: Mapping[str, Any]) -> StudyRequest:
        request = make_request(kind, arguments)
        with self._database.transaction() as cursor:
            cursor.execute(
                "SELECT owner, session_user FROM automl_studies WHERE id = %s", (self._study.id,)
            )
            for owner, role in cursor.fetchall():
                if owner not in (None, role):
                    raise ConfigError(
                        f"study.name={self._study.name}: {owner} began it in "
                        f"{self._database.where}, and its sweeps take requests of that role alone; "
                        f"you are {role} there. Name the database with that role in study.storage, "
                        "or ask the study's owner."
                    )
            cursor.execute(
                "INSERT INTO automl_requests (study, id, body) VALUES (%s, %s, %s) "
                "RETURNING extract(epoch FROM written)::float8",
                (self._study.id, request.id, request.text()),
            )
            return replace(request, time=study_tables.single_row(cursor)[0])

    def is_served(self) -> bool:
        with self._database.transaction() as cursor:
            return bool(_sweeps_at_work(cursor, self._study.id))

    def take_answer(self, request: StudyRequest, *, is_late: bool = False) -> RequestAnswer | None:
        key = self._study.id, request.id
        with self._database.transaction() as cursor:
            cursor.execute("SELECT answers FROM automl_requests WHERE study = %s AND id = %s", key)
            row = cursor.fetchone()
            answers = {} if row is None else {k: RequestAnswer(**v) for k, v in row[0].items()}
            missing: dict[str, str] = {}
            if _FOR_ALL not in answers:
                at_work = _sweeps_at_work(cursor, self._study.id, request.time)
                missing = {s: host for s, host in at_work.items() if s not in answers}
            if not answers or (missing and not is_late):
                return None
            if not missing:
                cursor.execute("DELETE FROM automl_requests WHERE study = %s AND id = %s", key)
            cursor.execute(
                "SELECT sweep, holder FROM automl_sweeps WHERE sweep = ANY(%s)", ([*answers],)
            )
            hosts = {sweep: TrialHolder.from_text(holder).host for sweep, holder in cursor}
        return _combine(answers, hosts, [*missing.values()])

    def withdraw(self, request: StudyRequest) -> None:
        with self._database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM automl_requests WHERE study = %s AND id = %s",
                (self._study.id, request.id),
            )

    def pending(self) -> list[StudyRequest]:
        with self._database.transaction() as cursor:
            return self._read(cursor)

    def answer(self, request: StudyRequest, answer: RequestAnswer) -> None:
        with self._database.transaction() as cursor:
            self._write_answer(cursor, request, answer)

    def close(self) -> None:
        self._database.close()

    def _read(self, cursor: psycopg.Cursor) -> list[StudyRequest]:
        """Return the requests that this sweep has not answered; another user's are no requests."""
        cursor.execute(
            "SELECT r.id, CASE WHEN octet_length(r.body) <= %s AND r.role = coalesce(s.owner, "
            "r.role) THEN r.body END, r.role, extract(epoch FROM r.written)::float8 "
            "FROM automl_requests r JOIN automl_studies s ON s.id = r.study "
            "WHERE s.id = %s AND NOT r.answers ?| %s ORDER BY r.id",
            (MAX_REQUEST_BYTES, self._study.id, [_FOR_ALL, self._sweep]),
        )
        found = []
        for request_id, body, role, written in cursor:
            with suppress(ValueError, TypeError):
                request = StudyRequest.from_text((body or "").encode(), request_id)
                found.append(replace(request, time=written))
                continue
            if request_id not in self._ignored:
                self._ignored.add(request_id)
                logger.warning(
                    "request %s of %s in %s is ignored: it is no request of the study's owner",
                    request_id,
                    role,
                    self._database.where,
                )
        return found

    def _write_answer(
        self, cursor: psycopg.Cursor, request: StudyRequest, answer: RequestAnswer
    ) -> None:
        """Write the answer, unless there is one: the first that is for all counts."""
        key = self._sweep if request.is_for_sweeps else _FOR_ALL
        cursor.execute(
            "UPDATE automl_requests SET answers = answers || jsonb_build_object(%s::text, "
            "%s::jsonb) WHERE study = %s AND id = %s AND NOT answers ? %s",
            (key, json.dumps(asdict(answer)), self._study.id, request.id, key),
        )


def _combine(
    answers: Mapping[str, RequestAnswer], hosts: Mapping[str, str], missing: Sequence[str]
) -> RequestAnswer:
    """Return one answer of those of several sweeps, with the machine of each."""
    first = next(iter(answers.values()))
    if len(answers) + len(missing) == 1:
        return first
    lines = sorted(f"{hosts.get(sweep, '?')}: {answer.text}" for sweep, answer in answers.items())
    lines += [f"{host}: has not answered yet; it does so as soon as it can" for host in missing]
    return RequestAnswer("\n".join(lines), done=any(answer.done for answer in answers.values()))


class SweepRequestQueue(SharedRequestQueue):
    """The requests as a sweep sees them: the main thread answers those that the background threads
    have read, and waits for no database."""

    def __init__(self, database: Database, study: StoredStudy, sweep: str) -> None:
        super().__init__(database, study)
        self._sweep = sweep
        self._found: list[StudyRequest] = []
        """The requests of the last look, until the main thread takes them."""
        self._answered: set[str] = set()
        self._unwritten: list[tuple[StudyRequest, RequestAnswer]] = []

    def begin(self, cursor: psycopg.Cursor) -> None:
        """Begin to take requests, and remove old answers that nobody has read."""
        cursor.execute(
            "DELETE FROM automl_requests WHERE study = %s AND answers <> '{}' "
            "AND written < clock_timestamp() - %s * interval '1 second'",
            (self._study.id, STALE_SECONDS),
        )
        cursor.execute(
            "SELECT extract(epoch FROM since)::float8 FROM automl_sweeps WHERE sweep = %s",
            (self._sweep,),
        )
        self.since = study_tables.single_row(cursor)[0]
        renew_sweep_lease(cursor, self._sweep)

    def look(self, cursor: psycopg.Cursor) -> None:
        """Read the requests that this sweep has not answered."""
        self._found = self._read(cursor)

    def pending(self) -> list[StudyRequest]:
        """Return the requests of the last look, once: unanswered ones are read again."""
        found, self._found = self._found, []
        return [request for request in found if request.id not in self._answered]

    def answer(self, request: StudyRequest, answer: RequestAnswer) -> None:
        self._answered.add(request.id)
        self._unwritten.append((request, answer))

    def write_answers(self) -> None:
        """Write the answers so far. Raises StorageError, and writes them at the next call then."""
        if not (answers := [*self._unwritten]):
            return
        with self._database.transaction() as cursor:
            for request, answer in answers:
                self._write_answer(cursor, request, answer)
        del self._unwritten[: len(answers)]

    def close(self) -> None:
        """Do nothing: the sweep closes its connections."""
