"""Compares studies in a table, and on one HTML page: `report A B`, and the older `compare`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.config import StudyConfig
from automl.config.command_arguments import CompareArguments
from automl.errors import ConfigError
from automl.record.disk import write_atomically
from automl.record.output_file import find_output
from automl.record.studies import find_study
from automl.record.texts import counted
from automl.report_page.comparison import (
    comparison_file,
    comparison_page,
    comparison_rows,
    difference_sentence,
    setting_rows,
    split_comparable,
)
from automl.report_page.study_data import read_study_data
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.terminal.study_view import copy_note

MAX_SETTINGS = 20
"""Largest number of settings that differ which are printed; the page has all."""


def run(call: CommandCall) -> int:
    """Print the table and the place of the page. Raises AutoMLError."""
    names = call.typed_arguments(CompareArguments).studies
    return compare_studies(Path(call.config.study.dir), names)


def compare_studies(folder: Path, names: Sequence[str], to: str | None = None) -> int:
    """Print the table of the studies of a folder, and write the page, to the file `to` if one is
    named. Raises AutoMLError."""
    if len(names) < 2:
        raise ConfigError(
            f"studies={','.join(names)}: name two studies or more, such as: python -m automl "
            "report first second"
        )
    paths = [find_study(StudyConfig(name=name, dir=str(folder))) for name in names]
    studies = [read_study_data(path) for path in paths]
    kept, left_out = split_comparable(studies)
    path = comparison_file(folder, studies) if to is None else find_output("to", to)
    write_atomically(path, comparison_page(studies))
    columns, rows = comparison_rows(kept) if kept else ((), [])
    settings = setting_rows(kept)
    sentences = [difference_sentence(kept)] if len(kept) > 1 else []
    notes = [f"{path.name}: {note}" for path in paths if (note := copy_note(path)) is not None]
    if wants_answer():
        write_answer(
            {
                "page": os.path.relpath(path),
                "studies": [dict(zip(columns, row, strict=True)) for row in rows],
                "settings": {key: values for key, *values in settings},
                "sentences": [*sentences, *left_out, *notes],
            }
        )
        return 0
    console = open_console()
    if rows:
        console.table(columns, rows)
    for line in (*sentences, *left_out, *notes):
        console.say(line)
    if settings:
        console.table(
            ("setting", *(data.record.name for data in kept)),
            settings[:MAX_SETTINGS],
            n_left=1 + len(kept),
        )
    if len(settings) > MAX_SETTINGS:
        console.say(f"and {counted(len(settings) - MAX_SETTINGS, 'more setting')}")
    console.say(os.path.relpath(path))
    return 0
