"""`trials`: writes the table of all trials of a study, for spreadsheets and programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from automl.commands.models.study_opening import fetch_shared_study
from automl.config import Config, TableFormat
from automl.data.tables.frames import frame_from_records, frame_text, frame_to_parquet
from automl.record.disk import write_atomically
from automl.record.studies import find_study, read_study
from automl.record.texts import counted
from automl.record.trial_record import TRIAL_COLUMNS, trial_row
from automl.running.display.console import open_console
from automl.running.display.machine_output import wants_answer, write_answer


def run(config: Config, stored_config: str) -> int:
    """Print the table, or write it to `trials.output`. Raises AutoMLError."""
    fetch_shared_study(config.study)
    record = read_study(find_study(config.study))
    rows = [trial_row(trial) for trial in record.trials.values()]
    frame = frame_from_records(rows, TRIAL_COLUMNS, index="trial")
    if wants_answer():
        write_answer({"study": record.name, "trials": rows})
        return 0
    output, kind = config.trials.output, config.trials.format
    if output is not None and kind is TableFormat.parquet:
        frame_to_parquet(frame, Path(output))
    else:
        text = frame_text(frame, as_json=kind is TableFormat.json)
        if output is None:
            sys.stdout.write(text)
            return 0
        write_atomically(Path(output), text)
    open_console().say(f"{counted(len(rows), 'trial')}: {os.path.relpath(output)}")
    return 0
