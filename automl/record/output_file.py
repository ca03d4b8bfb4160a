"""Writes a file where the user says, such as `trials.output` and `archive.output`.

A plain file or a new name is replaced whole, and a link is followed. Anything else, such as a
folder or a device, would be destroyed and is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from automl.errors import ConfigError, StorageError
from automl.record.disk import file_kind, flush_folder, open_replacing


def find_output(setting: str, value: str | os.PathLike[str]) -> Path:
    """Return the plain file, or the new name, that the value of a setting leads to. Raises
    ConfigError for anything else."""
    typed = os.fspath(value)
    problem = f"{setting}={typed}:"
    try:
        path = Path(os.path.realpath(os.path.expanduser(typed)))
        is_in_folder = path.parent.is_dir() and typed.rpartition(os.sep)[2] != ""
        kind = file_kind(path.lstat().st_mode) if os.path.lexists(path) else ""
    except (OSError, ValueError) as error:  # no right to look, a NUL
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{problem} cannot be written ({reason}); name another file.") from error
    if kind:
        raise ConfigError(f"{problem} this is {kind}, which no file replaces; name a file.")
    if not is_in_folder:
        raise ConfigError(f"{problem} must be a file in a folder that is there.")
    return path


@contextmanager
def open_output(setting: str, value: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file, which at the end is on disk in place of the one that the value of a setting
    leads to.

    Raises the errors of `find_output`, and StorageError where the file cannot be written.
    """
    path = find_output(setting, value)
    try:
        with open_replacing(path) as file:
            yield file
        flush_folder(path.parent)
    except OSError as error:
        if error.filename not in (None, str(path)):  # it is another file's
            raise
        raise StorageError(
            f"{setting}={os.fspath(value)}: cannot be written ({error.strerror or error}); make "
            "room, mend the folder's rights, or name another file."
        ) from error
