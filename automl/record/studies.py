"""Find the studies of a folder, tell which is the newest, and read the record of one.

Nothing here keeps a study's lock or waits for it, so a sweep may be at work on the study.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.disk import nonblocking_opener, take_lock
from automl.record.event_log import read_events
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, record_from_events
from automl.record.texts import parse_json


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

    A last line that is torn, or still being written, is left out. Trials of a sweep that was killed
    are interrupted. With `keep_reports` the record keeps all reports of its trials in memory.
    Raises ConfigError for a folder that is no study, or that cannot be read.
    """
    at_work = is_at_work(directory)  # before the log, to which nothing is written afterwards
    files = StudyFiles(directory)
    log = files.events
    try:
        if not log.exists() and not files.config.exists():
            raise ConfigError(
                f"study.name={directory.name}: {directory} holds no study; in {directory.parent} "
                f"{existing_studies_text(directory.parent)}. Name one of them, or another folder "
                "with study.dir=…"
            )
        record = record_from_events(
            (event for event, _ in read_events(log)), keep_reports=keep_reports
        )
    except OSError as error:
        raise ConfigError(unreadable_text(log, error)) from error
    record = replace(record, name=directory.name)
    is_swept = at_work is not False and not is_holder_newer(directory, record)
    return record if is_swept or record.is_shared else record.as_left(time.time())


def is_study_held(path: Path) -> bool:
    """Return whether a living sweep holds the directory. Raises OSError, as for another user's."""
    try:
        # Without blocking: somebody may have put a pipe there.
        fd = os.open(StudyFiles(path).lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        if take_lock(fd, kind=fcntl.LOCK_SH):
            return False
    finally:
        os.close(fd)
    return holding_command(read_holder(path)) in SWEEP_COMMANDS


SWEEP_COMMANDS = ("sweep", "resume")


def holding_command(holder: Mapping[str, Any]) -> str:
    """Return the command that holds a study; a holder that has not said so is a sweep."""
    return str(holder.get("command", SWEEP_COMMANDS[0]))


def is_at_work(directory: Path) -> bool | OSError:
    """Return whether a sweep works in the folder of a study, or the error that hides it: the study
    may be another user's."""
    try:
        return is_study_held(directory)
    except OSError as error:
        return error


def is_holder_newer(directory: Path, record: StudyRecord) -> bool:
    """Return whether whoever holds the study has taken it since its last sweep began: a sweep that
    has not begun yet, or a command."""
    holder, begun = read_holder(directory), record.sweeps[-1].start.time if record.sweeps else 0.0
    return isinstance(since := holder.get("since"), float) and since > begun


def suspended_holder(directory: Path) -> int | None:
    """Return the process that holds the study if it is stopped, as by Ctrl-Z; else None."""
    holder = read_holder(directory)
    if holder.get("host") != socket.gethostname():
        return None
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{holder.get('pid')}/stat").read_text()
        if status.rpartition(")")[2].split()[0] in "Tt":
            return int(status.split()[0])
    return None


def read_holder(directory: Path) -> Mapping[str, Any]:
    """Return what the last holder of the study has written of itself: `pid`, `host`, `user`,
    `command`, and `since` (Unix seconds); empty: nothing that can be read."""
    with suppress(OSError, ValueError):
        with open(StudyFiles(directory).lock, "rb", opener=nonblocking_opener) as file:
            holder = parse_json(file.read(4096).decode(errors="replace"))
        return holder if isinstance(holder, dict) else {}
    return {}


def no_study_text(folder: Path) -> str:
    """Return the message for a folder that holds no study."""
    return f"study.dir={folder}: holds no study yet; start one: python -m automl"


def unreadable_text(path: Path, error: OSError) -> str:
    """Return the message for a file or folder that this user may not read."""
    return (
        f"{path} cannot be read ({error.strerror}); ask its owner for the right to, or name "
        "another study: its name, and its folder as study.dir=…"
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
