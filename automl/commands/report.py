"""`report`: writes the report of a study, one HTML page that opens without a server."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from automl.commands.models.study_opening import fetch_shared_study
from automl.config import Config
from automl.record.studies import find_study
from automl.record.study_directory import is_study_held
from automl.running.display.console import open_console
from automl.running.finish.study_report import make_report


def run(config: Config, stored_config: str) -> int:
    """Write `report.html` of `study.name`, or of the newest study. Raises AutoMLError."""
    fetch_shared_study(config.study)
    directory = find_study(config.study)
    path = make_report(directory, is_running=_is_running(directory))
    open_console().say(os.path.relpath(path))
    return 0


def _is_running(directory: Path) -> bool:
    with suppress(OSError):  # the lock of another user's study
        return is_study_held(directory)
    return False
