"""A sweep's own log, and its way into the table: in order, each line once, none of a lost trial.

The log (`outbox/SWEEP.log`) is on this machine's disk before anybody else knows of a line. A line
of a trial carries the attempt that it belongs to, and is taken only while that is the current one.
What was refused is passed over for good: somebody else has the trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import cannot
from automl.record.sealed import is_damaged
from automl.record.sharing import tables
from automl.record.sharing.database import Database
from automl.trial import Failed, Finished, Pruned, TooLarge

OUTBOX = "outbox"
MAX_BYTES = 2**18
"""Shipped in one transaction, which keeps others waiting."""
_NO_TRIAL = -1
_LAST = frozenset(kind.__name__ for kind in (Finished, Pruned, TooLarge, Failed))


@dataclass(frozen=True)
class Line:
    """A line of a sweep's own log."""

    text: str
    end: int
    """The byte after it."""
    trial: int | None
    attempt: int | None
    is_last: bool
    """Nothing comes after it of that trial."""


def read_lines(path: Path, offset: int) -> list[Line]:
    """The next whole lines from that byte on, of MAX_BYTES or one. Raises StorageError."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(MAX_BYTES)
            if data and b"\n" not in data:
                data += file.readline()
    except OSError as error:
        raise StorageError(cannot(path, "read", error)) from error
    return [*_lines(data[: data.rfind(b"\n") + 1], offset)]


def _lines(data: bytes, offset: int) -> Iterator[Line]:
    for raw in data.splitlines(keepends=True):
        offset += len(raw)
        body = raw.rstrip(b"\n")
        try:
            fields = {} if is_damaged(body) else json.loads(body)
            trial, attempt, kind = fields.get("trial"), fields.get("attempt"), fields["event"]
            yield Line(body.decode("ascii"), offset, trial, attempt, kind in _LAST)
        except (ValueError, KeyError, AttributeError):
            yield Line("", offset, _NO_TRIAL, None, is_last=False)  # a damaged disk: nobody has it


def accepted(lines: list[Line], attempts: Mapping[int, int | None]) -> list[Line]:
    """Those that the record takes, by the current attempt of each trial (None: it has ended)."""
    now = dict(attempts)
    taken = []
    for line in lines:
        if line.trial is not None:
            if line.attempt is None or now.get(line.trial) != line.attempt:
                continue
            if line.is_last:
                now[line.trial] = None
        taken.append(line)
    return taken


def ship(database: Database, study: int, sweep: str, path: Path) -> list[Line]:
    """Give the table the next lines of that log; returns them, refused ones included.

    Raises StorageError. Repeated after a lost answer it gives none twice.
    """
    with database.transaction() as cursor:
        offset = tables.shipped(cursor, sweep)
    lines = read_lines(path, offset)
    if not lines:
        return []
    with database.transaction() as cursor:
        tables.lock_study(cursor, study)
        if tables.shipped(cursor, sweep) != offset:
            return lines  # an earlier transaction was taken, whose answer was lost
        numbers = {line.trial for line in lines if line.trial is not None}
        taken = accepted(lines, tables.attempts(cursor, study, numbers))
        if taken:
            tables.add_events(cursor, study, sweep, [(line.end, line.text) for line in taken])
        if ended := [line.trial for line in taken if line.is_last and line.trial is not None]:
            tables.end_trials(cursor, study, ended)
        tables.set_shipped(cursor, sweep, lines[-1].end)
    return lines
