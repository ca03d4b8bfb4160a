"""What a program as objective wrote for its trial's run: the files of a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from automl.record.files import StudyFiles
from automl.tracking.run_update import RunUpdate

MAX_FILES = 1_000
"""Of a trial; a folder of a data set would be stored again for each."""


def with_program_files(update: RunUpdate, study: Path, number: int) -> RunUpdate:
    """The update of a trial that has ended, with its program's files; links are none of them."""
    relative = StudyFiles(Path()).program_files(number)
    folder = study / relative
    if folder.is_symlink() or not folder.is_dir():
        return update
    found = list(islice(_files(folder), MAX_FILES + 1))
    refused = list(update.refused)
    if len(found) > MAX_FILES:
        refused.append(f"{relative} has more than {MAX_FILES} files; the others were not stored")
    return replace(
        update,
        program_files=sorted(found[:MAX_FILES]),
        program_folder=relative.as_posix(),
        refused=refused,
    )


def _files(folder: Path) -> Iterator[str]:
    """Paths below the folder."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix()
