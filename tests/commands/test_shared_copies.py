"""What commands tell of a study that machines share: from its database, or from an old copy."""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automl.api.study_handle import StudyHandle
from automl.commands import compare, trials
from automl.commands import list as list_command
from automl.commands.command_call import CommandCall
from automl.config import CommandArguments, Config, StudyConfig
from automl.config.command_arguments import CompareArguments
from automl.record.event_log import encode_event
from automl.record.lease import this_holder
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.study_fetch import fetch_study
from automl.record.sharing.study_tables import StoredTrial
from automl.terminal.study_view import StudyStatus, look_at, read_status
from automl.trial import Event, FinishedOutcome, MetricsReported, SweepEnded, SweepStarted
from automl.trial import TrialStarted as Started
from tests.postgres import database, postgres
from tests.report.studies import BEGUN, SETTINGS

__all__ = ["database", "postgres"]
N_TRIALS = 3


def events_of(n_ended: int, n_open: int, url: str) -> list[Event]:
    """The events of a study whose trials end one after another, and of which some run."""
    own = {**SETTINGS, "study.n_trials": str(N_TRIALS), "study.storage": url}
    found: list[Event] = [SweepStarted(BEGUN, "any", "0" * 32, own)]
    for number in range(n_ended + n_open):
        found.append(Started(number, BEGUN + number, {"lr": 0.1}, "cpu of elsewhere"))
        found.append(MetricsReported(number, BEGUN + number, 0, {"val_loss": 0.5}))
        if number < n_ended:
            found.append(FinishedOutcome(number, BEGUN + number, 0.5))
    if n_ended == N_TRIALS:
        found.append(SweepEnded(BEGUN + 9, True, {}, 0, 0.5))
    return found


def store(
    url: str, name: str, events: list[Event], n_trials: int, n_ended: int, alive: bool
) -> None:
    """Put a study into the database; the sweep that has its open trials lives, or has left them."""
    with Database(url) as opened, opened.transaction() as cursor:
        study_tables.make_tables(cursor, "it")
        study_tables.add_study(cursor, name, name, {}, "study: {}\n", N_TRIALS)
        found = study_tables.find_study(cursor, name)
        assert found is not None
        study_tables.add_sweep(cursor, found.id, name, this_holder())
        for number in range(n_trials):
            study_tables.claim_trial(cursor, found.id, name, StoredTrial(number, {"lr": 0.1}))
        study_tables.end_trials(cursor, found.id, list(range(n_ended)))
        if not alive:
            study_tables.give_back_trials(cursor, found.id, name)
        for place, event in enumerate(events, 1):
            cursor.execute(
                "INSERT INTO automl_events VALUES (%s, %s, %s, %s, %s)",
                (found.id, place, name, place, encode_event(event, 1).decode().rstrip("\n")),
            )
        cursor.execute(
            "UPDATE automl_studies SET n_events = %s WHERE id = %s", (len(events), found.id)
        )


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n_ended=st.integers(0, N_TRIALS), n_open=st.integers(0, 2), alive=st.booleans(), cut=st.data()
)
def test_the_database_is_asked_or_the_copy_is_said_to_be_old(
    n_ended: int, n_open: int, alive: bool, cut: st.DataObject, database: str
) -> None:
    n_open = min(n_open, N_TRIALS - n_ended)
    name, events = f"s{uuid.uuid4().hex}", events_of(n_ended, n_open, database)
    store(database, name, events, n_ended + n_open, n_ended, alive)
    n_copied = cut.draw(st.integers(1, len(events)))
    with tempfile.TemporaryDirectory() as folder:
        study = StudyConfig(name=name, dir=folder, storage=database)
        (in_database := list_command._stored_studies(study))
        path = Path(folder) / name
        path.mkdir()
        (path / "config.yaml").write_text("study: {}\n")
        (path / "events.log").write_bytes(
            b"".join(encode_event(event, 1) for event in events[:n_copied])
        )
        copy, in_list = read_status(path)[0], look_at(path)
        asked = read_status(path, fetch_study(study))[0]
    listed = in_database[name]
    assert isinstance(listed, StudyStatus)
    assert isinstance(in_list, StudyStatus)
    running = n_open if alive else 0
    for status in (listed, asked):
        shown = {state: n for state, n in status.view.counts.items() if n}
        wanted = {"finished": n_ended, "running": running, "interrupted": n_open - running}
        assert shown == {state: n for state, n in wanted.items() if n}
        done = "done" if n_ended == N_TRIALS else "interrupted"
        assert status.state == ("running" if running else done)
        assert status.copy_note is None
        assert ("go on with" in (status.note("go on with") or "")) == (
            status.state == "interrupted"
        )
    for status in (copy, in_list):
        assert status.copy_note is not None
        assert "its database was not asked (study.storage=… asks it)" in status.copy_note
        is_whole = n_copied == len(events) and n_ended == N_TRIALS
        assert status.state == ("done" if is_whole else "unknown")
        assert ("go on with" in (status.note("go on with") or "")) != is_whole


def test_tables_and_the_handle_say_that_a_copy_is_old(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        log = b"".join(encode_event(event, 1) for event in events_of(1, 1, "postgresql://any/db"))
        (tmp_path / name / "events.log").write_bytes(log)
    study = StudyConfig(name="one", dir=str(tmp_path))
    both = CompareArguments(studies=["one", "two"])
    table, note = _printed(trials.run, Config(study=study))
    assert "its database" not in table, "programs read it"
    for said in (
        repr(StudyHandle(tmp_path / "one")),
        note,
        _printed(compare.run, Config(study=study), both)[0],
    ):
        assert "its database was not asked (study.storage=… asks it)" in said


def _printed(
    run: Callable[[CommandCall], int], config: Config, arguments: CommandArguments | None = None
) -> tuple[str, str]:
    """Return what a command prints on stdout, and on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert run(CommandCall(config, arguments=arguments)) == 0
    return out.getvalue(), err.getvalue()
