"""`status`: prints a study so far, from any process.

The results of its trials come from the record, up to the last event. Running and waiting trials,
and the reasons, come from the view that its sweep writes to `status.json`, while it runs or as it
ended; where that file is lost or damaged, the record tells the rest, too. The study's lock tells
whether a sweep runs. Nothing of the study is written here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.models.study_opening import fetch_shared_study
from automl.config import UNLIMITED_N_TRIALS, Config, StudyConfig
from automl.errors import ConfigError
from automl.record.studies import find_study, read_study
from automl.record.study_directory import is_study_held, study_command
from automl.record.study_files import EVENTS_FILE, StudyFiles
from automl.record.study_record import StudyRecord, edit_lines
from automl.record.texts import fit_line
from automl.record.trial_record import trial_row
from automl.running.display.console import duration_text, open_console, value_text
from automl.running.display.machine_output import wants_answer, write_answer
from automl.running.display.rendering import failure_lines, render_view
from automl.running.display.trial_messages import FailureCounts
from automl.running.display.view import (
    BestRow,
    SweepView,
    best_row,
    outside_rows,
    read_view,
    spread_values,
)
from automl.running.setup.resume_command import resume_command_from_settings
from automl.trial import StudyEdited, TrialState

if TYPE_CHECKING:
    from automl.record.sharing.study_fetch import FetchedStudy


def run(config: Config, stored_config: str) -> int:
    """Print the view of `study.name`, or of the newest study. Raises ConfigError."""
    fetched = fetch_shared_study(config.study)
    path = find_study(config.study)
    if config.status.trial is not None:
        show_trial(path, config.status.trial)
        return 0
    # Asked first: after the lock is released nothing more is written.
    is_running = _is_running(path)
    record = read_study(path)
    if fetched is not None and not is_running:
        shown = _view_of_record(path, record, fetched)
        print_view(shown, _note_of_shared(config.study, fetched), record.edits)
        return 0
    view = _last_view(path, record)
    is_open = view.ended is None
    if record.sweeps:  # otherwise its log is lost, and the record is empty
        killed = is_open and is_running is False
        view = as_recorded(as_killed(view, record) if killed else view, record)
    resume_text = resume_command_from_settings(
        replace(config.study, name=view.study), record.settings
    )
    note = _note_of_open_sweep(view, resume_text, is_running) if is_open else None
    if is_open and note is None and fetched is not None:  # the view has only this sweep's trials
        note = _where_at_work(fetched)
    print_view(view, note, record.edits)
    for line in () if is_open or wants_answer() else _ensemble(record, path):
        open_console().say(line)
    return 0


def _ensemble(record: StudyRecord, path: Path) -> Sequence[str]:
    """Return the lines about the study's ensemble that the sweep's end printed; empty if there is
    no ensemble (any more), or the log does not know its members."""
    ensemble = record.ensemble
    if (
        ensemble is None
        or not StudyFiles(path).ensemble.exists()
        or not (ensemble.members.keys() <= record.trials.keys())
    ):
        return ()
    from automl.models.family import load_families
    from automl.running.finish.ensemble import (
        ensemble_lines,  # loads numpy, which other studies do not need
    )

    family = load_families().get(record.settings.get("model", ""))
    lines = ensemble_lines(ensemble, record, None if family is None else family.choice, path)
    refit = StudyFiles(path).refit
    return [*lines, f"refit: {os.path.relpath(refit)}"] if refit.exists() else lines


def _view_of_record(path: Path, record: StudyRecord, fetched: FetchedStudy) -> SweepView:
    """Return the view of a shared study whose sweeps run on other machines."""
    counts = {state.value: n for state, n in record.counts().items()}
    n_open = sum(n for state, n in record.counts().items() if not state.is_final)
    n_running = min(n_open, sum(fetched.at_work.values()))
    counts[TrialState.RUNNING.value] = n_running
    counts[TrialState.INTERRUPTED.value] = n_open - n_running
    view = SweepView(
        path.name, str(path), time.time(), fetched.n_trials, record.metric.name, counts
    )
    return as_recorded(view, record)


def _last_view(path: Path, record: StudyRecord) -> SweepView:
    """Return the view that the last sweep wrote, or what the record tells of it where that file is
    lost or damaged. Raises ConfigError where the record has no sweep either."""
    status = StudyFiles(path).status
    if record.sweeps and not status.exists():
        return _view_of_last_sweep(path, record)
    try:
        view = read_view(status)
    except ConfigError as error:
        if not record.sweeps:
            raise
        open_console().say(f"{error} What follows is from {EVENTS_FILE}.", "magenta")
        return _view_of_last_sweep(path, record)
    return replace(view, study=path.name, directory=str(path))  # it may have been moved since


def _view_of_last_sweep(path: Path, record: StudyRecord) -> SweepView:
    """Return the view of a study from its record, up to the last event of a trial."""
    start, end = record.sweeps[-1].start, record.sweeps[-1].end
    totals = [record.settings.get("study.n_trials", str(UNLIMITED_N_TRIALS))]
    totals += [e.after.get("study.n_trials", "") for e in record.edits if e.time > start.time]
    times = [start.time, *(trial.ended or trial.started for trial in record.trials.values())]
    n_open = sum(not trial.state.is_final for trial in record.trials.values())
    view = SweepView(
        path.name,
        str(path),
        max(times),
        int([*filter(None, totals)][-1]),
        record.metric.name,
        {TrialState.RUNNING.value: n_open},
    )
    if end is None:
        return view
    how = "done" if end.done else "failing" if end.failed else "interrupted"
    counts = {TrialState.INTERRUPTED.value: n_open}
    return replace(view, time=end.time, ended=how, counts=counts)


def _note_of_shared(study: StudyConfig, fetched: FetchedStudy) -> str:
    at_work = _where_at_work(fetched)
    return at_work or f"no sweep works on it; go on with: {study_command('resume', study)}"


def _where_at_work(fetched: FetchedStudy) -> str | None:
    """Return on which machines trials run; None if none runs."""
    return f"trials that run: {fetched.where_at_work}" if fetched.at_work else None


def show_trial(path: Path, number: int) -> None:
    """Print one trial with its curve. Raises ConfigError if there is none of that number."""
    record = read_study(path, keep_reports=True)
    trial = record.trials.get(number)
    if trial is None:
        raise ConfigError(
            f"status.trial={number}: study {path.name} has no trial of this number; it has "
            f"{len(record.trials):,}, from 0 on."
        )
    reports = sorted((trial.reports or {}).items())
    if wants_answer():
        curve = [{"step": step, **metrics} for step, metrics in reports]
        write_answer({"study": path.name, **trial_row(trial), "curve": curve})
        return
    console = open_console()
    shown = {key: value for key, value in trial_row(trial).items() if value not in (None, "")}
    for key, value in shown.items():
        is_time = key in ("started", "ended")
        text = time.strftime("%F %T", time.localtime(value)) if is_time else value_text(value)
        console.say(f"{key:20} {text}")
    names = list(dict.fromkeys(name for _, metrics in reports for name in metrics))
    rows = [(str(step), *(f"{m[n]:.6g}" if n in m else "" for n in names)) for step, m in reports]
    if rows:
        console.table(("step", *map(fit_line, names)), rows, n_left=0)


def print_view(view: SweepView, note: str | None, edits: Sequence[StudyEdited] = ()) -> None:
    """Print the whole view, the failures by cause, the edits of the study, and how the sweep ended,
    else the note."""
    if wants_answer():
        write_answer({**asdict(view), "note": note, "edits": [*map(edit_row, edits)]})
        return
    console = open_console()
    console.print(render_view(view))
    for line in failure_lines(view):
        console.say(line, "red")
    for edit in edits:
        when = time.strftime("%F %T", time.localtime(edit.time))
        console.say(fit_line(f"edited {when} by {edit.user}: {'; '.join(edit_lines(edit))}"), "dim")
    age = time.time() - view.time
    if view.ended is not None:
        console.say(f"{fit_line(view.ended)}, {duration_text(age)} ago", "dim")
    elif note is not None:
        console.say(fit_line(note), "magenta")


def edit_row(edit: StudyEdited) -> dict[str, object]:
    """Return an edit as plain values."""
    lines = edit_lines(edit)
    return {"time": edit.time, "user": edit.user, "changed": lines, "undoes": edit.undoes or None}


def as_recorded(view: SweepView, record: StudyRecord) -> SweepView:
    """Return the view with the trials that ended according to the record, also after the view was
    written."""
    ended = {n for n, trial in record.trials.items() if trial.state.is_final}
    running = tuple(row for row in view.running if row.number not in ended)
    settled = (s for s in TrialState if s.is_final or s is TrialState.PAUSED)
    counts = {**view.counts, **{state.value: record.counts()[state] for state in settled}}
    if view.running:
        counts[TrialState.RUNNING.value] = len(running)
    best = record.best()
    if best is not None:
        view = replace(view, best=best_row(best, record.metric.name), front=front_rows(record))
    return replace(
        view,
        counts=counts,
        running=running,
        failures=FailureCounts(record.trials).rows(),
        best_so_far=spread_values(record.best_values()),
        device_seconds=max(view.device_seconds or 0.0, record.device_seconds),
    )


def front_rows(record: StudyRecord) -> tuple[BestRow, ...]:
    """Return the rows of the front; empty in a study of one metric."""
    front = record.front() if record.metrics.are_several else ()
    return tuple(best_row(trial, record.metric.name) for trial in front)


def as_killed(view: SweepView, record: StudyRecord) -> SweepView:
    """Return the view of a sweep that was killed: its running and waiting trials are interrupted,
    and those that run outside go on."""
    outside = outside_rows(record.trials, time.time())
    interrupted = {row.number for row in view.waiting if row.number is not None}
    interrupted |= {n for n, trial in record.trials.items() if not trial.state.is_final}
    interrupted -= {n for n, t in record.trials.items() if t.state is TrialState.PAUSED}
    interrupted -= {row.number for row in outside}
    counts = {TrialState.INTERRUPTED.value: len(interrupted)}
    return replace(view, counts=counts, running=outside, waiting=(), devices=(), seconds_left=None)


def _is_running(path: Path) -> bool | OSError:
    """Return whether a sweep holds the study, or the error that prevents seeing it."""
    try:
        return is_study_held(path)
    except OSError as error:
        return error


def _note_of_open_sweep(
    view: SweepView, resume_text: str, is_running: bool | OSError
) -> str | None:
    """Return a note on a sweep that has not recorded its end, and the command that resumes it; None
    while it runs."""
    age = f"{time.time() - view.time:.0f} s ago"
    if isinstance(is_running, OSError):
        return (
            f"as of {age}; whether a sweep still works on it cannot be seen "
            f"({StudyFiles(Path(view.directory)).lock}: {is_running.strerror})"
        )
    return None if is_running else f"interrupted {age}; go on with: {resume_text}"
