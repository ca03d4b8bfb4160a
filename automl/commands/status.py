"""`status`: prints a study so far, from any process.

What is shown is put together in `terminal/study_view.py`. Nothing of the study is written
here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.config.command_arguments import StatusArguments
from automl.errors import ConfigError
from automl.record.studies import find_study, read_study
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, edit_lines
from automl.record.texts import counted, fit_line, value_text
from automl.record.trial_record import trial_row
from automl.running.prepare.resume_command import resume_command_from_settings
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.rendering import failure_lines, render_view
from automl.terminal.study_view import StudyStatus, read_status
from automl.trial import StudyEdited


def run(call: CommandCall) -> int:
    """Print the view of `study.name`, or of the newest study. Raises ConfigError."""
    config = call.config
    fetched = fetch_shared_study(config.study)
    path = find_study(config.study)
    trial = call.typed_arguments(StatusArguments).trial
    if trial is not None:
        show_trial(path, trial)
        return 0
    status, record = read_status(path, fetched)
    study = replace(config.study, name=path.name)
    note = status.note(resume_command_from_settings(study, record.settings))
    if fetched is not None and fetched.at_work and note is None:
        note = f"trials that run: {fetched.where_at_work}"
    print_status(status, note, record.edits)
    is_over = status.state in ("done", "timeout") and fetched is None
    for line in _ensemble(record, path) if is_over and not wants_answer() else ():
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
    from automl.running.features.ensemble import (
        ensemble_lines,  # loads numpy, which other studies do not need
    )

    family = load_families().get(record.settings.get("model", ""))
    lines = ensemble_lines(ensemble, record, None if family is None else family.choice, path)
    refit = StudyFiles(path).refit
    return [*lines, f"refit: {os.path.relpath(refit)}"] if refit.exists() else lines


def show_trial(path: Path, number: int) -> None:
    """Print one trial with its curve. Raises ConfigError if there is none of that number."""
    record = read_study(path, keep_reports=True)
    trial = record.trials.get(number)
    if trial is None:
        raise ConfigError(
            f"trial={number}: study {path.name} has no trial of this number; it has "
            f"{counted(len(record.trials), 'trial')}, from 0 on."
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


def print_status(status: StudyStatus, note: str | None, edits: Sequence[StudyEdited] = ()) -> None:
    """Print the whole view, the failures by cause, the edits of the study, and the note."""
    view = status.view
    if wants_answer():
        shown = {**asdict(view), "state": status.state, "note": note}
        write_answer({**shown, "edits": [*map(edit_row, edits)]})
        return
    console = open_console()
    console.print(render_view(view))
    for line in failure_lines(view):
        console.say(line, "red")
    for edit in edits:
        when = time.strftime("%F %T", time.localtime(edit.time))
        console.say(fit_line(f"edited {when} by {edit.user}: {'; '.join(edit_lines(edit))}"), "dim")
    if note is not None:
        console.say(fit_line(note), "magenta" if status.goes_on else "dim")


def edit_row(edit: StudyEdited) -> dict[str, object]:
    """Return an edit as plain values."""
    lines = edit_lines(edit)
    return {"time": edit.time, "user": edit.user, "changed": lines, "undoes": edit.undoes or None}
