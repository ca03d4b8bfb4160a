"""Makes the report of a study from its folder, also while its sweep runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from automl.errors import ConfigError
from automl.models.family import load_families
from automl.record.study_files import StudyFiles
from automl.report.page import write_report
from automl.report.study_data import read_study_data
from automl.running.display.view import read_view


def make_report(directory: Path, *, is_running: bool = False) -> Path:
    """Write the report of the study at `directory`; return its path.

    Raises ConfigError if the study cannot be read, StorageError if the page cannot be written.
    """
    data = read_study_data(directory, is_running=is_running)
    if is_running:
        data = replace(data, waiting=_waiting(directory))
    family = load_families().get(data.record.settings.get("model", ""))
    return write_report(data, directory, None if family is None else family.choice)


def _waiting(directory: Path) -> tuple[tuple[str, str], ...]:
    try:
        view = read_view(StudyFiles(directory).status)
    except ConfigError:
        return ()
    return tuple(
        ("the next trial" if row.number is None else f"trial {row.number}", row.reason)
        for row in view.waiting
        if not row.as_it_should
    )
