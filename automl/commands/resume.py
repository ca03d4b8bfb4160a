"""`resume`: continues a study by its own stored config; a sweep that is paused goes on.

The file is short because each command is a file of its own.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from automl.commands.steering import ask_sweep
from automl.commands.sweep import load_and_run_sweep
from automl.config import Config
from automl.errors import ConfigError
from automl.record.studies import study_path
from automl.record.study_directory import is_study_held
from automl.record.study_files import StudyFiles

_OWN_LINE = "  relative_to:"
"""Begins the line of a stored config that tells from which folder the command was given."""


def run(config: Config, stored_config: str) -> int:
    """Run the sweep of an existing study to its end, or let its paused sweep go on. Raises
    AutoMLError."""
    path = study_path(config.study)
    if not config.study.shared and is_study_held(path) and _has_config(path, stored_config):
        with suppress(ConfigError):  # it is not paused, which opening the study tells better
            return ask_sweep(path, config.study, "resume", {})
    return load_and_run_sweep(config, stored_config, resume=True)


def _has_config(path: Path, stored_config: str) -> bool:
    """Return whether no setting is changed: the sweep that runs keeps those that it has."""

    def settings(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith(_OWN_LINE)]

    return settings(StudyFiles(path).config.read_text("utf-8")) == settings(stored_config)
