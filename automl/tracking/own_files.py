"""The files that a trial made for its run: by a program, and by logging artifacts.

Both stand in a folder of the trial's own, and become artifacts when it has ended. The study may be
a stranger's: links are none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from automl.config import KeepCheckpoints
from automl.record.files import CHECKPOINTS, CONFIG, PROGRAM_FILES, StudyFiles
from automl.tracking.run_update import RunUpdate

MAX_FILES = 1_000
"""Of a folder; one of a data set would be stored again for each trial."""
_TAKEN = (CHECKPOINTS, PROGRAM_FILES, CONFIG)
"""What stands beside logged artifacts in a run."""


def with_own_files(update: RunUpdate, study: Path, number: int, keep: KeepCheckpoints) -> RunUpdate:
    """The update of a trial that has ended, with its files; what is logged is always kept."""
    files = StudyFiles(Path())
    found, refused = list[tuple[str, str]](), list(update.refused)
    for folder, stored in (
        (files.program_files(number), keep is not KeepCheckpoints.none),
        (files.logged_files(number), True),
    ):
        paths = list(islice(_files(study / folder), MAX_FILES + 1)) if stored else []
        if len(paths) > MAX_FILES:
            refused.append(f"{folder} has more than {MAX_FILES} files; the others were not stored")
        found += [((folder / path).as_posix(), _below(folder, path)) for path in paths[:MAX_FILES]]
    return replace(update, own_files=sorted(found), refused=refused)


def _below(folder: Path, path: PurePosixPath) -> str:
    """The folder of the run: as the objective has laid it out, beside what is the sweep's."""
    beside = folder.name == PROGRAM_FILES or path.parts[0] in _TAKEN
    below = PurePosixPath(folder.name) / path.parent if beside else path.parent
    return "" if below == PurePosixPath() else str(below)


def _files(folder: Path) -> Iterator[PurePosixPath]:
    """Paths below the folder, in their order; none where it is a link or not there."""
    if folder.is_symlink():
        return
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield PurePosixPath(path.relative_to(folder).as_posix())
