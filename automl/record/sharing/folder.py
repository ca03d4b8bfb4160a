"""A folder of its own for a sweep that joins in a folder of studies where another is at work.

Machines that share their disk give the same command in the same place. The first sweep has the
study's own folder; each further one gets `joined/HOST-N/NAME` in it, with all that a sweep writes
but the checkpoints: those lie together, so that whoever takes a trial over goes on from its last
one.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from automl.config import StudyConfig
from automl.errors import StudyInUseError
from automl.record.directory import StudyDirectory
from automl.record.disk import make_folder
from automl.record.files import CHECKPOINTS

JOINED = "joined"


def open_joined(study: StudyConfig) -> StudyDirectory:
    """The first such folder of this machine that no sweep is in. Raises ConfigError."""
    assert study.name is not None
    main = Path(study.dir) / study.name
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    for n in count():
        own = replace(study, dir=str(main / JOINED / f"{host}-{n}"))
        with suppress(StudyInUseError):
            directory = StudyDirectory.open(own, must_exist=False)
            _share_checkpoints(main, directory.path)
            return directory
    raise AssertionError("one is free")


def has_others_checkpoints(directory: Path) -> bool:
    """Whether trials of another sweep of the disk can go on there."""
    return (directory / CHECKPOINTS).is_symlink() or (directory / JOINED).is_dir()


def _share_checkpoints(main: Path, joined: Path) -> None:
    make_folder(main / CHECKPOINTS)
    link = joined / CHECKPOINTS
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "..", CHECKPOINTS))
