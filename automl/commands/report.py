"""`report`: writes the report of a study, one HTML page that opens without a server."""

from __future__ import annotations

import os

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.record.studies import find_study, is_at_work
from automl.running.features.report_page import make_report
from automl.terminal.console import open_console
from automl.terminal.machine_output import write_answer
from automl.terminal.study_view import copy_note


def run(call: CommandCall) -> int:
    """Write `report.html` of `study.name`, or of the newest study. Raises AutoMLError."""
    fetched = fetch_shared_study(call.config.study)
    directory = find_study(call.config.study)
    path = make_report(directory, is_running=is_at_work(directory) is True)
    page = os.path.relpath(path)
    open_console().say(page)
    if fetched is None and (note := copy_note(directory)) is not None:
        open_console().say(note, "dim")
    write_answer({"study": directory.name, "page": page})
    return 0
