"""The model that a study ends with: which file it is, and the link `best.pt` that leads to it.

The link is relative and is replaced in one step, so that it survives a copy, a move and a kill. It
may be one event late; `winner_file` itself is always right.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from automl.trial import CheckpointKind

logger = logging.getLogger(__name__)


def winner_file(directory: Path) -> Path | None:
    """Return the file of the best model of the study: the refit, else the ensemble, else the best
    trial's. None if there is none. Raises ConfigError."""
    files = StudyFiles(directory)
    if (joint := _joint_model(files)) is not None:
        return joint
    best = read_study(directory).best()
    return None if best is None else _trial_model(files, best.number)


def link_winner(directory: Path, best_trial: int | None) -> None:
    """Point `best.pt` of the study to its best model, of which `best_trial` is the best trial;
    remove the link if there is no model.

    Where the file system has no links, nothing stands there, and the log says so.
    """
    files = StudyFiles(directory)
    target = _joint_model(files)
    if target is None and best_trial is not None:
        target = _trial_model(files, best_trial)
    link = files.winner
    text = None if target is None else os.path.relpath(target, directory)
    if _link_text(link) == text:
        return
    try:
        if text is None:
            link.unlink()
            return
        beside = link.with_name(f".{link.name}.{os.getpid()}.part")
        with suppress(FileNotFoundError):  # of a process of this number that was killed
            beside.unlink()
        beside.symlink_to(text)
        beside.replace(link)
    except OSError as error:
        logger.info("%s cannot be made: %s", link, error.strerror)


def _joint_model(files: StudyFiles) -> Path | None:
    return next((path for path in (files.refit, files.ensemble) if path.exists()), None)


def _trial_model(files: StudyFiles, number: int) -> Path | None:
    path = files.checkpoint(number, CheckpointKind.BEST)
    return path if path.exists() else None


def _link_text(link: Path) -> str | None:
    """Return where the link leads; None: it is not there. A plain file leads nowhere."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return None
    except OSError:  # a plain file, such as a copy that followed the link
        return ""
