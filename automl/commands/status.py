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
from automl.commands.list import print_studies, read_studies, study_answers
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.trials import write_trials
from automl.config import StudyConfig
from automl.config.command_arguments import StatusArguments, TrialsArguments
from automl.errors import ConfigError
from automl.record.studies import find_study, read_study, study_names
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, edit_lines
from automl.record.texts import counted, fit_line, value_text
from automl.record.trial_record import trial_row
from automl.running.prepare.resume_command import resume_command_from_settings
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.rendering import failure_lines, render_view
from automl.terminal.study_view import StudyStatus, look_at, read_status
from automl.terminal.view import EnsembleRow
from automl.trial import EnsembleBuilt, StudyEdited

N_OTHERS = 10
"""Number of other studies that are listed below the newest."""


def run(call: CommandCall) -> int:
    """Print the view of `study.name`, or of the newest study. Raises ConfigError."""
    config, arguments = call.config, call.typed_arguments(StatusArguments)
    if arguments.trials is not None:
        return write_trials(config.study, TrialsArguments())
    fetched = fetch_shared_study(config.study)
    path = find_study(config.study)
    if arguments.trial is not None:
        show_trial(path, arguments.trial)
        return 0
    status, record = read_status(path, fetched)
    is_over = status.state in ("done", "timeout") and fetched is None
    if wants_answer() and is_over:
        status = replace(status, view=replace(status.view, ensemble=_ensemble_row(record, path)))
    study = replace(config.study, name=path.name)
    note = status.note(resume_command_from_settings(study, record.settings))
    if fetched is not None and fetched.at_work and note is None:
        note = f"trials that run: {fetched.where_at_work}"
    studies = study_answers(config.study) if arguments.all and wants_answer() else None
    print_status(status, note, record.edits, studies)
    for line in _ensemble(record, path) if is_over and not wants_answer() else ():
        open_console().say(line)
    if not wants_answer() and (config.study.name is None or arguments.all):
        _print_other_studies(config.study, path, are_all=arguments.all)
    return 0


def _print_other_studies(study: StudyConfig, shown: Path, *, are_all: bool) -> None:
    """Print a row for each study of the folder but the one that is shown: `N_OTHERS`, or all."""
    if are_all:
        others, n_left = read_studies(study), 0
        others.pop(shown.name, None)
    else:
        names = [name for name in study_names(shown.parent) if name != shown.name]
        others = {name: look_at(shown.parent / name) for name in names[:N_OTHERS]}
        n_left = len(names) - len(others)
    if not others:
        return
    open_console().say("")
    print_studies(others)
    if n_left:
        open_console().say(
            f"and {counted(n_left, 'study', 'studies')} more: status all=true", "dim"
        )


def _ensemble(record: StudyRecord, path: Path) -> Sequence[str]:
    """Return the lines about the study's ensemble that the sweep's end printed; empty if there is
    no ensemble (any more), or the log does not know its members."""
    if (ensemble := _present_ensemble(record, path)) is None:
        return ()
    from automl.running.features.ensemble import (
        ensemble_lines,  # loads numpy, which other studies do not need
    )

    lines = ensemble_lines(ensemble, record, _choice(record), path)
    refit = StudyFiles(path).refit
    return [*lines, f"refit: {os.path.relpath(refit)}"] if refit.exists() else lines


def _ensemble_row(record: StudyRecord, path: Path) -> EnsembleRow | None:
    """Return the study's ensemble for a program; None if there is none (any more)."""
    ensemble, choice = _present_ensemble(record, path), _choice(record)
    if ensemble is None or choice is None:
        return None
    from automl.running.features.ensemble import ensemble_row  # loads numpy

    return ensemble_row(ensemble, record.ranking(), record.metric.name, choice)


def _present_ensemble(record: StudyRecord, path: Path) -> EnsembleBuilt | None:
    """Return the newest ensemble, if its file is there and the log knows its members."""
    ensemble = record.ensemble
    if ensemble is None or not StudyFiles(path).ensemble.exists():
        return None
    return ensemble if ensemble.members.keys() <= record.trials.keys() else None


def _choice(record: StudyRecord) -> str | None:
    """Return the param that names the family of a trial; None: the study has one family."""
    from automl.models.family import load_families

    family = load_families().get(record.settings.get("model", ""))
    return None if family is None else family.choice


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


def print_status(
    status: StudyStatus,
    note: str | None,
    edits: Sequence[StudyEdited] = (),
    studies: Sequence[object] | None = None,
) -> None:
    """Print the whole view, the failures by cause, the edits of the study, and the note; for a
    program with `studies`, what it is told about each study of the folder."""
    view = status.view
    if wants_answer():
        shown = {**asdict(view), "n_trials": view.n_wanted, "state": status.state, "note": note}
        listed = {} if studies is None else {"studies": studies}
        write_answer({**shown, "edits": [*map(edit_row, edits)], **listed})
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
