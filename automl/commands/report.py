"""`report`: writes the report of a study, one HTML page that opens without a server.

Several studies are compared (`compare.py`), and all trials written as a table (`trials.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.commands.compare import compare_studies
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.trials import write_trials
from automl.config.command_arguments import ReportArguments, TrialsArguments
from automl.record.output_file import open_output
from automl.record.studies import find_study, is_at_work
from automl.running.features.report_page import make_report
from automl.terminal.console import open_console
from automl.terminal.machine_output import write_answer
from automl.terminal.study_view import copy_note


def run(call: CommandCall) -> int:
    """Write `report.html` of `study.name`, or of the newest study. Raises AutoMLError."""
    arguments, study = call.typed_arguments(ReportArguments), call.config.study
    if arguments.studies:
        names = [*([] if study.name is None else [study.name]), *arguments.studies]
        return compare_studies(Path(study.dir), list(dict.fromkeys(names)), arguments.to)
    if arguments.to is not None and Path(arguments.to).suffix.lower() != ".html":
        return write_trials(study, TrialsArguments(to=arguments.to))
    fetched = fetch_shared_study(call.config.study)
    directory = find_study(call.config.study)
    path = make_report(directory, is_running=is_at_work(directory) is True)
    if arguments.to is not None:
        with open_output("to", arguments.to) as file:
            file.write(path.read_bytes())
        path = Path(arguments.to)
    page = os.path.relpath(path)
    open_console().say(page)
    if fetched is None and (note := copy_note(directory)) is not None:
        open_console().say(note, "dim")
    write_answer({"study": directory.name, "page": page})
    return 0
