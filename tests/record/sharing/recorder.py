"""Takes down the history of shared studies in a database: triggers on the tables of `study_tables`.

Sweeps know nothing of it. An operation that is undone leaves nothing; those on one trial are
numbered in the order in which they take effect, since each holds the trial's row until its end.
"""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from automl.record.event_log import decode_event
from automl.record.lease import TrialHolder
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.trial import MetricsReported, TrialEvent, TrialOutcome
from tests.record.sharing.history import Deaths, Operation, OperationKind, Training

_SECONDS = "extract(epoch FROM {})::float8"
_BEGAN, _DONE = (_SECONDS.format(f"{at}_timestamp()") for at in ("transaction", "clock"))
_UNTIL = f"least(greatest({_SECONDS.format('NEW.lease_until')}, 0), 1e12)"
_TRIGGERS = f"""
CREATE TABLE history (
    id bigserial PRIMARY KEY, kind text, trial int, owner text, attempt int,
    began float8, done float8, lease_until float8, line text
);
CREATE FUNCTION note_trial() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE what text; who text := NEW.sweep;
BEGIN
    IF TG_OP = 'INSERT' THEN what := 'asked';
    ELSIF NEW.attempt <> OLD.attempt THEN what := 'taken over';
    ELSIF NEW.ended AND NOT OLD.ended THEN what := 'ended';
    ELSIF NEW.sweep IS NULL AND OLD.sweep IS NOT NULL THEN what := 'given back'; who := OLD.sweep;
    ELSIF NEW.lease_until <> OLD.lease_until THEN what := 'renewed';
    ELSE RETURN NULL;
    END IF;
    INSERT INTO history (kind, trial, owner, attempt, began, done, lease_until)
        VALUES (what, NEW.number, who, NEW.attempt, {_BEGAN}, {_DONE}, {_UNTIL});
    RETURN NULL;
END $$;
CREATE FUNCTION note_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (kind, owner, done, line) VALUES ('event', NEW.sweep, {_DONE}, NEW.line);
    RETURN NULL;
END $$;
CREATE TRIGGER note_trial AFTER INSERT OR UPDATE ON automl_trials
    FOR EACH ROW EXECUTE FUNCTION note_trial();
CREATE TRIGGER note_event AFTER INSERT ON automl_events
    FOR EACH ROW EXECUTE FUNCTION note_event();
"""


def record_history(url: str) -> None:
    """Take down from now on what is done in the database, which has no study yet."""
    with Database(url) as database, database.transaction() as cursor:
        study_tables.make_tables(cursor, "it")
        cursor.execute(_TRIGGERS.encode())


def read_history(url: str) -> list[Operation]:
    """Return what was done to the trials of the one study in the database."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT kind, trial, owner, attempt, began, done, lease_until, line FROM history "
            "ORDER BY id"
        ).fetchall()
    history = []
    for kind, trial, owner, attempt, began, done, lease_until, line in rows:
        if kind != "event":
            named = OperationKind(kind)
            history.append(
                Operation(named, trial, owner, attempt, began, done, lease_until=lease_until)
            )
        elif (operation := _of_event(line, owner, done)) is not None:
            history.append(operation)
    return history


def _of_event(line: str, owner: str, done: float) -> Operation | None:
    event = decode_event(line.encode())
    if not isinstance(event, TrialEvent):
        return None
    attempt = json.loads(line)["attempt"]
    if isinstance(event, MetricsReported):
        names = tuple(event.metrics)
        kind, step = OperationKind.REPORTED, event.step
        return Operation(kind, event.trial, owner, attempt, event.time, done, step, names)
    is_end = isinstance(event, TrialOutcome) and event.state.is_final
    kind = OperationKind.TOLD if is_end else OperationKind.LOGGED
    return Operation(kind, event.trial, owner, attempt, event.time, done)


def deaths_of_sweeps(url: str, deaths: dict[int, float]) -> Deaths:
    """Return when the sweeps were killed whose processes have these numbers."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT sweep, holder FROM automl_sweeps").fetchall()
    pids = {sweep: TrialHolder.from_text(holder).pid for sweep, holder in rows}
    return {sweep: deaths[pid] for sweep, pid in pids.items() if pid in deaths}


def read_trainings(*files: Path) -> list[Training]:
    """Return the times in which trials trained; a trial's own folder has them in a file.

    Each line has the number of a process, and when it began and ended an epoch.
    """
    trainings = []
    for file in files:
        trial = int(file.parent.name.removeprefix("trial-"))
        for line in file.read_text().splitlines():
            process, began, done = line.split()
            trainings.append(Training(trial, process, float(began), float(done)))
    return trainings
