"""The study directory: its name, and the lock that gives a study one sweep at a time.

The sweep that holds the lock owns every running trial of the study. The kernel drops the lock when
the holder dies in any way, so there is no stale lock to remove.

Machines that share their disk give the same command in the same place. The first sweep has the
study's own folder; each further one gets `joined/HOST-N/NAME` inside it. A joined folder has
everything that a sweep writes except the checkpoints: they lie together in the study's folder, so
that a sweep that takes a trial over goes on from its last one.

The files in the directory are listed in `study_files.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import re
import secrets
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType

from automl.config import StudyConfig
from automl.errors import ConfigError, StudyInUseError
from automl.record.disk import flush_folder, make_folder, public_file_opener, take_lock
from automl.record.studies import existing_studies_text
from automl.record.study_files import CHECKPOINTS_FOLDER, StudyFiles

_ADJECTIVES = ("amber", "brave", "calm", "deft", "eager", "fair", "keen", "lucid", "quick", "wise")
_ANIMALS = ("badger", "crane", "egret", "falcon", "gecko", "heron", "lynx", "marten", "otter")


LOCK_PROBE_SECONDS = 0.2
"""A lock that is held for longer belongs to a sweep, not to a process that only checks it
(`is_study_held`)."""


def make_study_name() -> str:
    """Return a new study name that can be said aloud: `brave-otter-3f9a`."""
    return f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_ANIMALS)}-{secrets.token_hex(2)}"


def study_command(command: str, study: StudyConfig) -> str:
    """Return the command line that runs `command` on the study."""
    where = "" if study.dir == StudyConfig().dir else f" study.dir={study.dir}"
    return f"python -m automl {command} study.name={study.name}{where}"


class StudyDirectory:
    """An open, locked study directory; a context manager that gives the lock back at its end."""

    def __init__(self, files: StudyFiles, *, fresh: bool, lock_fd: int) -> None:
        self.files = files
        self.fresh = fresh
        """This sweep made the directory; it is removed again if the sweep cannot begin."""
        self._lock_fd = lock_fd
        self._stays_locked = False

    @classmethod
    def open(cls, config: StudyConfig, *, must_exist: bool) -> StudyDirectory:
        """Make or open the directory `study.dir/study.name`, and lock it.

        Raises ConfigError when it must exist and does not, or cannot be made; StudyInUseError
        when a living sweep holds it.
        """
        assert config.name is not None
        path = Path(config.dir).absolute() / config.name
        files = StudyFiles(path)
        if must_exist and not path.is_dir():
            raise ConfigError(
                f"study.name={config.name}: there is no such study in {config.dir}; "
                f"{existing_studies_text(path.parent)}"
            )
        fresh = not path.exists()
        try:
            for folder in make_folder(path):
                flush_folder(folder)
            lock_fd = public_file_opener(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(
                f"study.dir={config.dir}: {path} cannot be written ({error.strerror}); "
                "name another folder with study.dir=…"
            ) from error
        _lock(lock_fd, config)
        return cls(files, fresh=fresh, lock_fd=lock_fd)

    @property
    def path(self) -> Path:
        return self.files.path

    def __enter__(self) -> StudyDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stays_locked:
            return
        if kind is not None and self.fresh and not self.files.config.exists():
            # The sweep was refused before it began: leave nothing behind, if possible.
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)

    def stay_locked(self) -> None:
        """Keep the lock until this process ends, because trials of it run on."""
        self._stays_locked = True


def _lock(lock_fd: int, study: StudyConfig) -> None:
    if not take_lock(lock_fd, LOCK_PROBE_SECONDS):
        holder = os.pread(lock_fd, 4096, 0).decode(errors="replace")
        os.close(lock_fd)
        raise StudyInUseError(
            f"study.name={study.name}: another sweep works on this study "
            f"({_holder_text(holder)}); wait for it, stop it, or choose another study.name. "
            f"See it with: {study_command('status', study)}"
        )
    holder_fields = {"pid": os.getpid(), "host": socket.gethostname(), "user": getpass.getuser()}
    with contextlib.suppress(OSError):  # a full disk: writers that need it report it
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, json.dumps(holder_fields | {"since": time.time()}).encode(), 0)


def _holder_text(holder: str) -> str:
    try:
        fields = json.loads(holder)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fields["since"]))
        return f"pid {fields['pid']} of {fields['user']} on {fields['host']}, since {since}"
    except (ValueError, KeyError, TypeError):
        return "it has not written its name yet"


def is_study_held(path: Path) -> bool:
    """Return whether a living sweep holds the study directory `path`.

    Raises OSError when the lock cannot be read, for example in a study of another user.
    """
    try:
        # Without blocking: somebody may have put a pipe there.
        fd = os.open(StudyFiles(path).lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return not take_lock(fd, kind=fcntl.LOCK_SH)
    finally:
        os.close(fd)


JOINED_FOLDER = "joined"


def open_joined_folder(study: StudyConfig) -> StudyDirectory:
    """Open the first joined folder of this machine that no sweep works in. Raises ConfigError."""
    assert study.name is not None
    main = Path(study.dir) / study.name
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    for n in count():
        joined = replace(study, dir=str(main / JOINED_FOLDER / f"{host}-{n}"))
        with suppress(StudyInUseError):
            directory = StudyDirectory.open(joined, must_exist=False)
            _share_checkpoints(main, directory.path)
            return directory
    raise AssertionError("one joined folder is free")


def has_others_checkpoints(directory: Path) -> bool:
    """Return whether the directory shares its checkpoints with other sweeps on the same disk."""
    return (directory / CHECKPOINTS_FOLDER).is_symlink() or (directory / JOINED_FOLDER).is_dir()


def _share_checkpoints(main: Path, joined: Path) -> None:
    make_folder(main / CHECKPOINTS_FOLDER)
    link = joined / CHECKPOINTS_FOLDER
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "..", CHECKPOINTS_FOLDER))
