"""Lists the studies of the folder `study.dir`, the newest first: below the study that `status`
shows, and by the older command `list`.

Those of a database that `study.storage` names come before them, as the database knows them now.

A folder that cannot be read gets a row that says why in a word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.studies import no_study_text, study_names, unreadable_text
from automl.record.texts import fit_line
from automl.terminal.console import cell_width, cut_to_width, open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.study_view import StudyStatus, look_at, shared_status

COLUMNS = ("study", "state", "trials", "failed", "best", "device-h", "age")
_MAX_WORD = 40
"""The largest number of characters that are shown of a metric or a state."""


def run(call: CommandCall) -> int:
    """Print a row for each study. Raises ConfigError where there is none."""
    if wants_answer():
        write_answer({"studies": study_answers(call.config.study)})
    else:
        print_studies(read_studies(call.config.study))
    return 0


def read_studies(study: StudyConfig) -> dict[str, StudyStatus | str]:
    """Return the status of each study of the folder and of its database by name, the newest first;
    a text where a folder cannot be read. Raises ConfigError where there is none."""
    folder, studies = Path(study.dir), _stored_studies(study)
    try:
        names = _names(folder)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise ConfigError(unreadable_text(folder, error)) from error
    for name in names:
        found = look_at(folder / name)
        is_local = isinstance(found, StudyStatus) and not found.is_copy
        if is_local or name not in studies:  # else the database has just told more
            studies[name] = found
    if not studies:
        raise ConfigError(no_study_text(folder))
    return studies


def study_answers(study: StudyConfig) -> list[dict[str, object]]:
    """Return what a program is told about each study. Raises ConfigError where there is none."""
    now = time.time()
    return [_answer(*found, now) for found in read_studies(study).items()]


def print_studies(studies: Mapping[str, StudyStatus | str]) -> None:
    """Print a row for each study."""
    now, console = time.time(), open_console()
    rows = [_row(*study, now) for study in studies.items()]
    if (excess := console.excess_width(COLUMNS, rows)) > 0:
        rows = _with_shorter_metrics(rows, excess)
    console.table(COLUMNS, rows, n_left=2)
    for name, found in studies.items():
        if isinstance(found, StudyStatus) and (note := found.copy_note) is not None:
            console.say(f"{fit_line(name)}: {note}", "dim")


def _stored_studies(study: StudyConfig) -> dict[str, StudyStatus | str]:
    """Return the status of each study of the database `study.storage` by name, if one is given.
    Raises AutoMLError."""
    if not study.shared or study.storage is None:
        return {}
    from automl.record.sharing.study_fetch import read_stored_studies  # loads psycopg

    return {
        name: shared_status(Path(study.dir) / name, record, fetched)
        for name, record, fetched in read_stored_studies(study.storage)
    }


def _names(folder: Path) -> list[str]:
    """Return the names of the studies, and after them the names of all other folders. Raises
    OSError."""
    studies = study_names(folder)
    with os.scandir(folder) as entries:
        folders = {e.name for e in entries if e.is_dir() and not e.name.startswith(".")}
    return studies + sorted(folders - set(studies))


def _row(name: str, status: StudyStatus | str, now: float) -> tuple[str, ...]:
    name = fit_line(name)
    if isinstance(status, str):
        return name, status, *[""] * (len(COLUMNS) - 2)
    best, view = "", status.view
    if view.best is not None:
        best = f"{fit_line(view.metric, _MAX_WORD)} {view.best.value_text}"
    state, n_failed = fit_line(status.state, _MAX_WORD), view.counts.get("failed", 0)
    hours = hours_text(view.device_seconds)
    return name, state, view.progress, str(n_failed), best, hours, age_text(now - view.time)


def _with_shorter_metrics(rows: Sequence[tuple[str, ...]], excess: int) -> list[tuple[str, ...]]:
    """Return the rows with the names of metrics cut, so that the table is narrower by `excess`
    columns if possible. Values stay whole."""
    at = COLUMNS.index("best")
    width = max(cell_width(row[at]) for row in rows) - excess
    shorter = []
    for row in rows:
        best, *error = row[at].split(" ± ")
        metric, blank, value = best.rpartition(" ")
        value = " ± ".join([value, *error])
        best = cut_to_width(metric, width - len(value) - 1) + blank + value
        shorter.append((*row[:at], best, *row[at + 1 :]))
    return shorter


def _answer(name: str, status: StudyStatus | str, now: float) -> dict[str, object]:
    if isinstance(status, str):
        return {"name": name, "state": status}
    view = status.view
    return {
        "name": name,
        "state": status.state,
        "counts": view.counts,
        "n_trials": view.n_wanted,
        "metric": view.metric,
        "best": view.best,
        "device_seconds": view.device_seconds,
        "age_seconds": now - view.time,
    }


def hours_text(seconds: float | None) -> str:
    """Return the time in hours: `<0.001`, `0.012`, `3.4`, `1,205`; empty if it is not known."""
    if seconds is None:
        return ""
    hours = seconds / 3600
    if 0 < hours < 0.001:
        return "<0.001"
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def age_text(seconds: float) -> str:
    """Return the time since the study was at work: `12 s`, `3 min`, `5 h`, `40 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
