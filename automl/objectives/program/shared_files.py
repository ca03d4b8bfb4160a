"""Files of the project's folder that more than one trial wrote, of which the last one's remains.

Nobody tells which process wrote a file. But what changed while a trial ran, and changed again after
its end while another ran, is that file of both, unless its name could be one trial's alone: a name
with a digit or with a param's value in it is believed to be, until no single trial ran through all
of its changes. What trials saw is kept in a file beside their checkpoints, a line for each.
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

from automl.record.disk import opener
from automl.record.study_files import WRITTEN_FILES
from automl.record.texts import fit_line, printable
from automl.trial import Params, TrialSpec

MAX_ENTRIES = 2_000
"""Of the project's folder and those in it; where there are more, nothing is looked at."""
_MAX_FILES = 50
_SLACK_SECONDS = 0.05
"""The kernel's clock for files is behind by some milliseconds."""
_NOT_LOOKED_INTO = frozenset(("__pycache__", "node_modules", "mlruns", "mlartifacts"))
_TAKES_MANY = (".db", ".db-journal", ".db-wal", ".db-shm", ".sqlite", ".sqlite3", ".pyc", ".lock")
_EDITED = (".py", ".ipynb", ".md", ".sh", ".log", ".out")
"""Ends of the names of files that are made to be written by several, and of those that people write
meanwhile, or have written for them."""


FileId: TypeAlias = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class TrialFileChanges:
    """What a trial saw change, from its begin or after an interruption. Times are Unix seconds."""

    trial: int
    began: float
    ended: float
    changed: Mapping[str, float]
    """The last change by path, below the project's folder."""
    values: tuple[str, ...] = ()
    """Texts among its params."""

    def covers(self, time: float) -> bool:
        return self.began - _SLACK_SECONDS <= time <= self.ended


def is_written_twice(path: str, seen: Sequence[TrialFileChanges]) -> bool:
    """Whether more than one of these trials wrote the file."""
    by_trial: dict[int, list[TrialFileChanges]] = {}
    for one in seen:
        if path in one.changed:
            by_trial.setdefault(one.trial, []).append(one)
    times = {one.changed[path] for own in by_trial.values() for one in own}
    if len(times) < 2 or len(by_trial) < 2:
        return False
    if not any(all(any(o.covers(t) for o in own) for t in times) for own in by_trial.values()):
        return True
    return not any(map(str.isdigit, path)) and not any(
        value in path for one in seen for value in one.values if value
    )


def shared_file_warnings(
    folder: Path, spec: TrialSpec, began: float, ours: Set[FileId]
) -> Iterator[str]:
    """Words on each file or folder that this trial, which has just ended, and others wrote; the
    same as those of other trials, so that they need be said once. Raises OSError."""
    checkpoints = Path(spec.checkpoint_dir).absolute().parent
    changed = files_changed_since(folder, began, checkpoints, ours)
    seen = TrialFileChanges(spec.number, began, time.time(), changed, param_texts(spec.params))
    every = add_file_changes(checkpoints / WRITTEN_FILES, seen)
    twice = [Path(path) for path in changed if is_written_twice(path, every)]
    for path in {path if path.parent == Path() else path.parent for path in twice}:
        text, name = fit_line(printable(str(path))), fit_line(printable(path.name))
        yield (
            f"{text} was written by more than one trial, and what remains is the last one's: have "
            f"the program write to {{trial_dir}}, such as --out={{trial_dir}}/{name}"
        )


def files_changed_since(
    folder: Path, began: float, without: Path, ours: Set[FileId] = frozenset()
) -> dict[str, float]:
    """Files of a folder and of those in it that changed, and when; `without` and what the sweep
    prints into (`ours`) are left out."""
    found: dict[str, float] = {}
    for n, (path, status) in enumerate(_files(folder, without)):
        if n >= MAX_ENTRIES:
            return {}
        is_ours = (status.st_dev, status.st_ino) in ours
        changed = status.st_mtime
        if changed >= began - _SLACK_SECONDS and not is_ours and len(found) < _MAX_FILES:
            found[path] = changed
    return found


def output_files(pid: int) -> frozenset[FileId]:
    """The files behind a process's standard output and error (Linux)."""
    found: set[FileId] = set()
    for number in (1, 2):
        with suppress(OSError):
            status = os.stat(f"/proc/{pid}/fd/{number}")
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def add_file_changes(file: Path, seen: TrialFileChanges) -> list[TrialFileChanges]:
    """Add what a trial saw to what those before it did; all of that."""
    line = json.dumps([seen.trial, seen.began, seen.ended, dict(seen.changed), list(seen.values)])
    with open(file, "ab", opener=opener) as out:
        out.write(line.encode() + b"\n")
    return list(_read(file))


def param_texts(params: Params) -> tuple[str, ...]:
    """Values that a name could hold."""
    return tuple(value for value in params.values() if isinstance(value, str))


def _read(file: Path) -> Iterator[TrialFileChanges]:
    for line in file.read_bytes().splitlines():
        try:
            trial, began, ended, changed, values = json.loads(line)
            yield TrialFileChanges(
                int(trial), float(began), float(ended), dict(changed), tuple(values)
            )
        except (ValueError, TypeError):  # torn by a kill; it is a picture only
            continue


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
                and entry.name not in _NOT_LOOKED_INTO
                and not entry.name.endswith(_TAKES_MANY + _EDITED)
                and not without.is_relative_to(entry.path)
            ]
    except OSError:
        return []
