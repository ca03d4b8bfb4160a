"""A study that is not at work, for a command: its record as it stands, and what is added to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from automl.config import StudyConfig
from automl.record.directory import StudyDirectory
from automl.record.events import EventLog

if TYPE_CHECKING:
    from automl.record.sharing.fetch import Fetched


def bring_up(study: StudyConfig) -> Fetched | None:
    """Take over what others have done of a shared study; None: this folder has all there is. Raises
    AutoMLError."""
    if not study.shared or study.name is None:
        return None
    from automl.record.sharing.fetch import fetch

    return fetch(study)


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
