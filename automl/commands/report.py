"""`report`: writes the report of a study, one HTML page that opens without a server.

Several studies are compared (`compare.py`), and all trials written as a table (`trials.py`). A
study of Optuna's becomes a study of a temporary folder.
"""

from __future__ import annotations

import os
import tempfile
import time
import webbrowser
from dataclasses import replace
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.commands.compare import compare_studies
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.trials import write_trials
from automl.config.command_arguments import OptunaReportArguments, ReportArguments, TrialsArguments
from automl.config.objective import ObjectiveKind
from automl.errors import ConfigError
from automl.record.output_file import open_output
from automl.record.studies import find_study, is_at_work
from automl.record.study_files import REPORT_FILE
from automl.record.study_record import StudyRecord
from automl.running.features.report_page import make_report
from automl.terminal.console import open_console
from automl.terminal.machine_output import write_answer
from automl.terminal.study_view import copy_note
from automl.tracking.long_step import long_step
from automl.trial import SweepEnded

SILENT_SECONDS = 2.0
"""A page that takes longer is announced."""


def run(call: CommandCall) -> int:
    """Write `report.html` of `study.name`, or of the newest study. Raises AutoMLError."""
    arguments, study = call.typed_arguments(ReportArguments), call.config.study
    if arguments.studies:
        names = [*([] if study.name is None else [study.name]), *arguments.studies]
        return compare_studies(Path(study.dir), list(dict.fromkeys(names)), arguments.to)
    if arguments.to is not None and Path(arguments.to).suffix.lower() != ".html":
        return write_trials(study, TrialsArguments(to=arguments.to, columns=arguments.columns))
    say = open_console().say
    fetched = fetch_shared_study(call.config.study)
    directory = find_study(call.config.study)
    is_running = is_at_work(directory) is True
    with long_step(f"making the page of {directory.name}", say, silent_seconds=SILENT_SECONDS):
        path = make_report(directory, is_running=is_running)
    if arguments.to is not None:
        with open_output("to", arguments.to) as file:
            file.write(path.read_bytes())
        path = Path(arguments.to)
    page = os.path.relpath(path)
    say(page)
    if arguments.watch:
        _open_in_browser(path, is_running)
    if fetched is None and (note := copy_note(directory)) is not None:
        say(note, "dim")
    write_answer({"study": directory.name, "page": page})
    return 0


_OF_OUR_STUDIES = ("next", "config")
"""The sections of a page that say what to do with a study, and which settings it has."""


def report_optuna(call: CommandCall) -> int:
    """Write the page of a study of Optuna's. Raises AutoMLError."""
    from automl.report_page.page import report_page, report_sections  # loads jinja2
    from automl.report_page.study_data import read_study_data
    from automl.running.opening.outside_study import begin_here  # loads Optuna

    to = call.typed_arguments(OptunaReportArguments).to or REPORT_FILE
    study = call.config.study
    if study.began_with is None:
        raise ConfigError("report from=…: it needs the address of a study: from=old.db:NAME")
    with tempfile.TemporaryDirectory(prefix="automl-report-") as folder:
        config = replace(call.config, study=replace(study, dir=folder))
        begin_here(config, call.stored_config)
        data = read_study_data(Path(folder) / str(study.name), is_optunas=True)
    data = replace(data, record=_as_optunas(data.record))
    sections = [
        section
        for section in report_sections(data, study, None)
        if section.key not in _OF_OUR_STUDIES
    ]
    with open_output("to", to) as file:
        file.write(report_page(data, sections).encode())
    shown = os.path.relpath(to)
    open_console().say(shown)
    write_answer({"study": study.began_with, "page": shown})
    return 0


def _as_optunas(record: StudyRecord) -> StudyRecord:
    """Return the record of a study that was made of one of Optuna's now: it began with its first
    trial, and only trials took time."""
    begin = min((trial.started for trial in record.trials.values()), default=time.time())
    sweep = record.sweeps[-1]
    settings = {**sweep.start.settings, "objective.kind": ObjectiveKind.optuna.name}
    start = replace(sweep.start, time=begin, settings=settings)
    end = SweepEnded(begin, True, record.counts(), None, None)
    ended = replace(sweep, start=start, end=end, last_seconds=begin)
    return replace(record, sweeps=(ended,))


def _open_in_browser(page: Path, is_running: bool) -> None:
    """Open the page, which loads itself again while a sweep of this machine runs."""
    if not webbrowser.open(page.absolute().as_uri()):
        raise ConfigError(
            f"watch=true: there is no browser here. Open {os.path.relpath(page)} elsewhere."
        )
    if not is_running:
        open_console().say(
            "No sweep of this machine works on it, so the page stays as it is.", "dim"
        )
