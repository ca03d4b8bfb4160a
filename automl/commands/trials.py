"""Writes the table of all trials of a study, for spreadsheets and programs: `report NAME to=FILE`,
`status NAME trials=all`, and the older command `trials`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.config import StudyConfig
from automl.config.command_arguments import TableFormat, TrialsArguments
from automl.data.tables.frames import frame_text, frame_to_parquet
from automl.data.tables.trials_frame import trials_frame
from automl.record.output_file import open_output
from automl.record.studies import find_study, read_study
from automl.record.texts import counted
from automl.record.trial_record import trial_row
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.study_view import copy_note


def run(call: CommandCall) -> int:
    """Print the table, or write it to the file `to`. Raises AutoMLError."""
    return write_trials(call.config.study, call.typed_arguments(TrialsArguments))


def write_trials(study: StudyConfig, arguments: TrialsArguments) -> int:
    """Print the table of the study's trials, or write it to a file. Raises AutoMLError."""
    fetched = fetch_shared_study(study)
    path = find_study(study)
    record = read_study(path)
    if fetched is None and (note := copy_note(path)) is not None:
        open_console(on_stderr=True).say(note, "dim")
    if wants_answer():
        rows = [trial_row(trial) for trial in record.trials.values()]
        write_answer({"study": record.name, "trials": rows})
        return 0
    frame = trials_frame(record, arguments.columns)
    output, kind = arguments.to, _table_format(arguments)
    if output is None:
        sys.stdout.write(frame_text(frame, as_json=kind is TableFormat.json))
        return 0
    with open_output("to", output) as file:
        if kind is TableFormat.parquet:
            frame_to_parquet(frame, file)
        else:
            file.write(frame_text(frame, as_json=kind is TableFormat.json).encode())
    open_console().say(f"{counted(len(frame), 'trial')}: {os.path.relpath(output)}")
    return 0


def _table_format(arguments: TrialsArguments) -> TableFormat:
    """Return the format that is named, else that of the file's ending, else CSV."""
    if arguments.format is not None:
        return arguments.format
    ending = Path(arguments.to or "").suffix.lower().removeprefix(".")
    return next((kind for kind in TableFormat if kind.value == ending), TableFormat.csv)
