"""Finds files in the project's folder that several trials wrote, so that the last one's remains.

The system does not say which process wrote a file. A file that changed while a trial ran, and again
after its end while another ran, counts as written by both. A name with a digit or a param's value
may belong to one trial alone; it counts only if no single trial ran during all of its changes.
The changes that each trial saw are kept as a line in a file beside the checkpoints. Nothing is
prevented here: the module only makes warnings.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from automl.record.disk import public_file_opener
from automl.record.study_files import WRITTEN_FILES_LOG
from automl.record.texts import fit_line, parse_json, printable_text
from automl.trial import TrialSpec

MAX_ENTRIES = 2_000
"""Largest number of entries in the project's folder and its folders; with more, none is checked."""
_MAX_FILES = 50
_SLACK_SECONDS = 0.05
"""Tolerance in seconds: the kernel's clock for files is behind by some milliseconds."""
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "mlruns", "mlartifacts"))
_MULTI_WRITER = (".db", ".db-journal", ".db-wal", ".db-shm", ".sqlite", ".sqlite3", ".pyc", ".lock")
_EDITED = (".py", ".ipynb", ".md", ".sh", ".log", ".out")
"""Name endings of skipped files: the first are made for several writers, the second are written by
people, or on their behalf, during a sweep."""


FileId: TypeAlias = tuple[int, int]
"""Device and inode of a file."""


@dataclass(frozen=True)
class TrialFileChanges:
    """The file changes since a trial began or continued; times are in Unix seconds."""

    trial: int
    began: float
    ended: float
    changed: Mapping[str, float]
    """The time of the last change, by path below the project's folder."""
    values: tuple[str, ...] = ()
    """The param values of the trial that are texts."""

    def covers(self, time: float) -> bool:
        return self.began - _SLACK_SECONDS <= time <= self.ended


def is_written_twice(path: str, seen: Sequence[TrialFileChanges]) -> bool:
    """Return whether more than one of these trials wrote the file."""
    by_trial: dict[int, list[TrialFileChanges]] = {}
    for changes in seen:
        if path in changes.changed:
            by_trial.setdefault(changes.trial, []).append(changes)
    times = {changes.changed[path] for own in by_trial.values() for changes in own}
    if len(times) < 2 or len(by_trial) < 2:
        return False
    if not any(all(any(o.covers(t) for o in own) for t in times) for own in by_trial.values()):
        return True
    return not any(map(str.isdigit, path)) and not any(
        value in path for changes in seen for value in changes.values if value
    )


def shared_file_warnings(
    folder: Path, spec: TrialSpec, began: float, own_outputs: Set[FileId]
) -> Iterator[str]:
    """Yield a warning for each file or folder that a trial, which has just ended, and others wrote.

    The text is the same for all trials, so that the sweep shows it once. `own_outputs` are the
    files that the sweep prints into. Raises OSError.
    """
    checkpoints = Path(spec.checkpoint_dir).absolute().parent
    changed = files_changed_since(folder, began, checkpoints, own_outputs)
    values = tuple(value for value in spec.params.values() if isinstance(value, str))
    seen = TrialFileChanges(spec.trial, began, time.time(), changed, values)
    every = add_file_changes(checkpoints / WRITTEN_FILES_LOG, seen)
    twice = [Path(path) for path in changed if is_written_twice(path, every)]
    for path in {path if path.parent == Path() else path.parent for path in twice}:
        text, name = fit_line(printable_text(str(path))), fit_line(printable_text(path.name))
        yield (
            f"{text} was written by more than one trial, and what remains is the last one's: have "
            f"the program write to {{trial_dir}}, such as --out={{trial_dir}}/{name}"
        )


def files_changed_since(
    folder: Path, began: float, without: Path, own_outputs: Set[FileId] = frozenset()
) -> dict[str, float]:
    """Return the files in a folder, and in its folders, that changed, with the times.

    `without` and the files that the sweep prints into (`own_outputs`) are left out.
    """
    found: dict[str, float] = {}
    for n, (path, status) in enumerate(_files(folder, without)):
        if n >= MAX_ENTRIES:
            return {}
        is_own_output = (status.st_dev, status.st_ino) in own_outputs
        changed = status.st_mtime
        if changed >= began - _SLACK_SECONDS and not is_own_output and len(found) < _MAX_FILES:
            found[path] = changed
    return found


def output_files(pid: int) -> frozenset[FileId]:
    """Return the files behind a process's standard output and error (Linux)."""
    found: set[FileId] = set()
    for number in (1, 2):
        with suppress(OSError):
            status = os.stat(f"/proc/{pid}/fd/{number}")
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def add_file_changes(file: Path, seen: TrialFileChanges) -> list[TrialFileChanges]:
    """Append the changes of a trial to the file, and return the changes of all trials in it."""
    line = json.dumps([seen.trial, seen.began, seen.ended, dict(seen.changed), list(seen.values)])
    with open(file, "ab", opener=public_file_opener) as out:
        out.write(line.encode() + b"\n")
    found = []
    for line in file.read_text(errors="replace").splitlines():
        # A kill may have torn a line; only warnings depend on it.
        with suppress(ValueError, TypeError):
            trial, began, ended, changed, values = parse_json(line)
            found.append(TrialFileChanges(trial, began, ended, dict(changed), tuple(values)))
    return found


def _files(folder: Path, without: Path) -> Iterator[tuple[str, os.stat_result]]:
    for entry in _entries(folder, without):
        if entry.is_dir(follow_symlinks=False):
            for inner in _entries(Path(entry.path), without):
                if inner.is_file(follow_symlinks=False):
                    yield f"{entry.name}/{inner.name}", inner.stat()
        elif entry.is_file(follow_symlinks=False):
            yield entry.name, entry.stat()


def _entries(folder: Path, without: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [
                entry
                for entry in entries
                if not entry.name.startswith(".")
                and entry.name not in _SKIPPED_FOLDERS
                and not entry.name.endswith(_MULTI_WRITER + _EDITED)
                and not without.is_relative_to(entry.path)
            ]
    except OSError:
        return []
