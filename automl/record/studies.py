"""The studies of a folder: where each is, which is the newest, and one of them read.

Nothing here takes a study's lock or waits for it: a sweep may be at work on it.
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
    """The directory of a study that has its name."""
    assert study.name is not None, "composed from the study's own config"
    return Path(study.dir) / study.name


def find_study(study: StudyConfig) -> Path:
    """The directory of the study that is named, or of the newest. Raises ConfigError when none."""
    folder = Path(study.dir)
    try:
        if study.name is not None:
            return _named(study_path(study))
        found = newest(folder)
    except OSError as error:
        raise ConfigError(not_readable(folder, error)) from error
    if found is None:
        raise ConfigError(no_study_in(folder))
    return found


def study_names(folder: Path) -> list[str]:
    """The studies in `folder`, the one that was at work last first.

    One that may not be looked into is left out, and hides no other.
    """
    found = {path.name: _last_seconds(path) for path in folder.glob("*")}
    studies = {name: seconds for name, seconds in found.items() if seconds is not None}
    return sorted(studies, key=studies.__getitem__, reverse=True)


def newest(folder: Path) -> Path | None:
    """The study in `folder` that was at work last; None: it holds none."""
    names = study_names(folder)
    return folder / names[0] if names else None


def existing(folder: Path) -> str:
    """The studies in `folder`, for a message."""
    names = sorted(study_names(folder))
    return f"there are: {', '.join(names)}" if names else "it holds no study yet"


def read_study(directory: Path, *, keep_reports: bool = False) -> StudyRecord:
    """The study at `directory` as its event log tells it now, under the folder's name.

    A last line that is still being written, or torn, is left out. With `keep_reports` all that its
    trials reported is in memory. Raises ConfigError for a folder that is no study of ours, or that
    cannot be read.
    """
    files = StudyFiles(directory)
    log = files.events
    try:
        if not log.exists() and not files.config.exists():
            raise ConfigError(
                f"study.name={directory.name}: {directory} holds no study; in {directory.parent} "
                f"{existing(directory.parent)}. Name one of them, or another folder with "
                "study.dir=…"
            )
        record = fold_events((event for event, _ in read_events(log)), keep_reports=keep_reports)
    except OSError as error:
        raise ConfigError(not_readable(log, error)) from error
    return replace(record, name=directory.name)


def model_files(directory: Path) -> list[Path]:
    """Return the files of the models of the study at `directory` that exist, the best one first:
    the refit, the ensemble, the best trial's."""
    files = StudyFiles(directory)
    found = [files.refit, files.ensemble]
    if (best := read_study(directory).best()) is not None:
        found.append(files.checkpoint(best.number, CheckpointKind.BEST))
    return [file for file in found if file.exists()]


def no_study_in(folder: Path) -> str:
    """What is said of a folder without any."""
    return f"study.dir={folder}: holds no study yet; start one: python -m automl"


def not_readable(path: Path, error: OSError) -> str:
    """What is said of a file or folder of somebody else's."""
    return (
        f"{path} cannot be read ({error.strerror}); ask its owner for the right to, or name "
        "another study with study.dir=… study.name=…"
    )


def _named(path: Path) -> Path:
    if path.is_dir():
        return path
    raise ConfigError(
        f"study.name={path.name}: there is no such study in {path.parent}; {existing(path.parent)}."
    )


def _last_seconds(study: Path) -> float | None:
    """When a sweep was last seen at work in the directory; None: it is no study."""
    try:
        stored = StudyFiles(study).config.stat().st_mtime
    except OSError:
        return None
    try:
        return max(stored, StudyFiles(study).status.stat().st_mtime)
    except OSError:
        return stored
