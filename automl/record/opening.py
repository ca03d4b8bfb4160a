"""The event log of a study that is not at work, for a command that has something to add to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from automl.config import StudyConfig
from automl.record.directory import StudyDirectory
from automl.record.events import EventLog


@contextmanager
def open_log(study: StudyConfig, directory: StudyDirectory) -> Iterator[EventLog]:
    """What is appended is in the database, too, where the study is shared. Raises AutoMLError."""
    if not study.shared:
        with EventLog.open(directory.files.events) as log:
            yield log
        return
    from automl.record.sharing.shared import Shared

    shared = Shared.open(study, directory.path)
    try:
        shared.begin()
        yield shared.log
    finally:
        shared.close()
