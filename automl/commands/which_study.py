"""Which study a command means, and where it is."""

from __future__ import annotations

from pathlib import Path

from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from automl.record.studies import existing, newest
from automl.running.view import not_readable


def study_path(study: StudyConfig) -> Path:
    """The directory of a study that has its name."""
    assert study.name is not None
    return Path(study.dir) / study.name


def find_study(config: Config) -> Path:
    """The directory of `study.name`, or of the newest study. Raises ConfigError when none."""
    folder = Path(config.study.dir)
    try:
        if config.study.name is not None:
            return _named(study_path(config.study))
        found = newest(folder)
    except OSError as error:
        raise ConfigError(not_readable(folder, error)) from error
    if found is None:
        raise ConfigError(no_study_in(folder))
    return found


def _named(path: Path) -> Path:
    if path.is_dir():
        return path
    raise ConfigError(
        f"study.name={path.name}: there is no such study in {path.parent}; {existing(path.parent)}."
    )


def no_study_in(folder: Path) -> str:
    """What is said of a folder without any."""
    return f"study.dir={folder}: holds no study yet; start one: python -m automl"
