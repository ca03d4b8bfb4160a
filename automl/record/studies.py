"""Find the studies of a folder, tell which is the newest, and read the record of one.

Nothing here takes a study's lock or waits for it, so a sweep may be at work on the study.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import read_events
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, fold_events
from automl.trial import CheckpointKind


def study_path(study: StudyConfig) -> Path:
    """Return the directory of a study whose name is set."""
    assert study.name is not None, "composed from the study's own config"
    return Path(study.dir) / study.name


def find_study(study: StudyConfig) -> Path:
    """Return the directory of the named study, or of the newest one. Raises ConfigError."""
    folder = Path(study.dir)
    try:
        if study.name is not None:
            return _named(study_path(study))
        newest = newest_study(folder)
    except OSError as error:
        raise ConfigError(unreadable_text(folder, error)) from error
    if newest is None:
        raise ConfigError(no_study_text(folder))
    return newest


def study_names(folder: Path) -> list[str]:
    """Return the studies in `folder` that this user may read, the most recently active first."""
    last_seconds = {path.name: _last_seconds(path) for path in folder.glob("*")}
    studies = {name: seconds for name, seconds in last_seconds.items() if seconds is not None}
    return sorted(studies, key=studies.__getitem__, reverse=True)


def newest_study(folder: Path) -> Path | None:
    """Return the most recently active study in `folder`; None: it holds no study."""
    names = study_names(folder)
    return folder / names[0] if names else None


def existing_studies_text(folder: Path) -> str:
    """Return the part of a message that lists the studies in `folder`."""
    names = sorted(study_names(folder))
    return f"there are: {', '.join(names)}" if names else "it holds no study yet"


def read_study(directory: Path, *, keep_reports: bool = False) -> StudyRecord:
    """Return the study at `directory` as its event log tells it now, under the folder's name.

    A last line that is torn, or still being written, is left out. With `keep_reports` the record
    keeps all reports of its trials in memory. Raises ConfigError for a folder that is no study, or
    that cannot be read.
    """
    files = StudyFiles(directory)
    log = files.events
    try:
        if not log.exists() and not files.config.exists():
            raise ConfigError(
                f"study.name={directory.name}: {directory} holds no study; in {directory.parent} "
                f"{existing_studies_text(directory.parent)}. Name one of them, or another folder "
                "with study.dir=…"
            )
        record = fold_events((event for event, _ in read_events(log)), keep_reports=keep_reports)
    except OSError as error:
        raise ConfigError(unreadable_text(log, error)) from error
    return replace(record, name=directory.name)


def model_files(directory: Path) -> list[Path]:
    """Return the existing models of the study, best first: refit, ensemble, best trial."""
    files = StudyFiles(directory)
    model_paths = [files.refit, files.ensemble]
    if (best := read_study(directory).best()) is not None:
        model_paths.append(files.checkpoint(best.number, CheckpointKind.BEST))
    return [path for path in model_paths if path.exists()]


def no_study_text(folder: Path) -> str:
    """Return the message for a folder that holds no study."""
    return f"study.dir={folder}: holds no study yet; start one: python -m automl"


def unreadable_text(path: Path, error: OSError) -> str:
    """Return the message for a file or folder that this user may not read."""
    return (
        f"{path} cannot be read ({error.strerror}); ask its owner for the right to, or name "
        "another study with study.dir=… study.name=…"
    )


def _named(path: Path) -> Path:
    if path.is_dir():
        return path
    raise ConfigError(
        f"study.name={path.name}: there is no such study in {path.parent}; "
        f"{existing_studies_text(path.parent)}."
    )


def _last_seconds(study: Path) -> float | None:
    """Return when a sweep was last active in the directory; None: it is no study."""
    try:
        stored = StudyFiles(study).config.stat().st_mtime
    except OSError:
        return None
    try:
        return max(stored, StudyFiles(study).status.stat().st_mtime)
    except OSError:
        return stored
