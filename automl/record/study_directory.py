"""The study directory: its name, its place, and the lock that gives a study one sweep at a time.

The sweep that holds the lock owns every running trial of the study. The kernel drops the lock when
the holder dies in any way, so there is no stale lock to remove.

Machines that share their disk give the same command in the same place. The first sweep has the
study's own folder; each further one gets `joined/HOST-N/NAME` inside it. A joined folder has
everything that a sweep writes except the checkpoints: they lie together in the study's folder, so
that a sweep that takes a trial over goes on from its last one.

A copied directory is noticed by `place.json`, which travels with a copy, while the directory's
inode does not. The file also holds the uuid by which MLflow knows the study: two folders with one
uuid would write into the same runs. It is replaced as a whole, uuid included.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import secrets
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from automl.config import STUDY_NAME_PATTERN, StudyConfig
from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.record.append_only import read_sealed, seal_line
from automl.record.disk import (
    flush_folder,
    make_folder,
    public_file_opener,
    take_lock,
    write_durably,
)
from automl.record.studies import (
    SWEEP_COMMANDS,
    existing_studies_text,
    holding_command,
    read_holder,
)
from automl.record.study_files import CHECKPOINTS_FOLDER, StudyFiles
from automl.record.texts import say_on_stdout

_ADJECTIVES = ("amber", "brave", "calm", "deft", "eager", "fair", "keen", "lucid", "quick", "wise")
_ANIMALS = ("badger", "crane", "egret", "falcon", "gecko", "heron", "lynx", "marten", "otter")


LOCK_PROBE_SECONDS = 0.2
"""A lock that is held for longer belongs to a sweep or another command, not to a process that only
checks it (`is_study_held`)."""
COMMAND_WAIT_SECONDS = 30.0
"""How long a command waits for another one, which mostly ends soon, unlike a sweep."""
_command = ContextVar("command", default=SWEEP_COMMANDS[0])
"""The command for which this process takes locks."""


@contextlib.contextmanager
def holding_for(command: str) -> Iterator[None]:
    """Name `command` as the holder of the locks that are taken in the block."""
    token = _command.set(command)
    try:
        yield
    finally:
        _command.reset(token)


def make_study_name() -> str:
    """Return a new study name that can be said aloud: `brave-otter-3f9a`."""
    return f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_ANIMALS)}-{secrets.token_hex(2)}"


def study_command(command: str, study: StudyConfig) -> str:
    """Return the command line that runs `command` on the study."""
    return f"python -m automl {command} {study.name}{_folder_word(study)}"


def copying_command(study: StudyConfig, new_name: str) -> str:
    """Return the command line that begins a study with the settings of this one."""
    return f"python -m automl sweep from={study.name}{_folder_word(study)} name={new_name}"


def _folder_word(study: StudyConfig) -> str:
    """Return the word that names the folder of studies, unless it is the default one."""
    return "" if study.dir == StudyConfig().dir else f" study.dir={study.dir}"


class StudyDirectory:
    """An open, locked study directory; a context manager that gives the lock back at its end."""

    def __init__(self, files: StudyFiles, *, fresh: bool, lock_fd: int) -> None:
        self.files = files
        self.fresh = fresh
        """This sweep made the directory; it is removed again if the sweep cannot begin."""
        self.locked_time = time.time()
        """Time at which this process took the lock: earlier requests to the study are not for
        it."""
        self._lock_fd = lock_fd
        self._stays_locked = False

    @classmethod
    def open(cls, config: StudyConfig, *, must_exist: bool, waits: bool = True) -> StudyDirectory:
        """Make or open the directory `study.dir/study.name`, and lock it.

        Raises ConfigError when it must exist and does not, or cannot be made; StudyInUseError
        when a living sweep holds it, or another command for longer than `COMMAND_WAIT_SECONDS`,
        without `waits` at once.
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
        _lock(lock_fd, path, config, COMMAND_WAIT_SECONDS if waits else 0.0)
        if not _is_at(lock_fd, files.lock):  # its holder has deleted or renamed the study
            os.close(lock_fd)
            return cls.open(config, must_exist=must_exist, waits=waits)
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


def _lock(lock_fd: int, path: Path, study: StudyConfig, wait_seconds: float) -> None:
    try:
        _wait_for_lock(lock_fd, path, study, wait_seconds)
    except BaseException:
        os.close(lock_fd)
        raise
    holder_fields = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": getpass.getuser(),
        "command": _command.get(),
    }
    with contextlib.suppress(OSError):  # a full disk: writers that need it report it
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, json.dumps(holder_fields | {"since": time.time()}).encode(), 0)


def _wait_for_lock(lock_fd: int, path: Path, study: StudyConfig, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    holder, announced = read_holder(path), dict[str, Any]()
    while not take_lock(lock_fd, LOCK_PROBE_SECONDS):
        before, holder = holder, read_holder(path)
        command = holding_command(holder)
        is_sweep = command in SWEEP_COMMANDS
        # A holder takes the lock before it writes its name, so that a name is read twice.
        if time.monotonic() < deadline and not (is_sweep and holder == before):
            if not is_sweep and holder != announced:
                announced = dict(holder)
                say_on_stdout(f"waiting for `{command}`, which holds study {study.name}")
            continue
        what = "another sweep works on" if is_sweep else f"`{command}` holds"
        stop = "wait for it, stop it, or choose another study.name"
        remedy = stop if is_sweep else "wait for it or stop it, then give the command again"
        raise StudyInUseError(
            f"study.name={study.name}: {what} this study ({_holder_text(holder)}); {remedy}. "
            f"See it with: {study_command('status', study)}"
        )


def _is_at(fd: int, path: Path) -> bool:
    """Return whether the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _holder_text(holder: Mapping[str, Any]) -> str:
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        return f"pid {holder['pid']} of {holder['user']} on {holder['host']}, since {since}"
    except (ValueError, KeyError, TypeError):
        return "it has not written its name yet"


JOINED_FOLDER = "joined"


def open_joined_folder(study: StudyConfig) -> StudyDirectory:
    """Open the first joined folder of this machine that no sweep works in. Raises ConfigError."""
    assert study.name is not None
    main = Path(study.dir) / study.name
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    for n in count():
        joined = replace(study, dir=str(main / JOINED_FOLDER / f"{host}-{n}"))
        with suppress(StudyInUseError):
            directory = StudyDirectory.open(joined, must_exist=False, waits=False)
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


_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True)
class StudyPlace:
    """The study of a folder, and where the folder stood when it was last opened."""

    study_uuid: str
    """The uuid by which the study's runs in MLflow are found."""
    path: str
    device: int
    inode: int
    former_names: tuple[str, ...] = ()
    """Earlier names of the study; its experiment in MLflow may still have one of them."""

    def __post_init__(self) -> None:
        whole = type(self.device) is int and type(self.inode) is int
        names = all(STUDY_NAME_PATTERN.fullmatch(name) for name in self.former_names)
        if not (_UUID.fullmatch(self.study_uuid) and whole and names):
            raise ValueError(f"{self} is no place of a study")

    @property
    def name(self) -> str:
        """The name of the study when it stood at `path`."""
        return Path(self.path).name


def settle_place(
    directory: Path, study: StudyConfig, study_uuid: str, stored_name: str
) -> StudyPlace:
    """Decide and store the study's place and uuid from now on. The caller holds the study's lock.

    `study_uuid` and `stored_name` come from the study's storage. Raises ConfigError when the study
    was moved or copied and `study.copy` does not say which.
    """
    stored = read_study_place(directory)
    here = _current_place(directory, study_uuid)
    if stored is None and stored_name == here.name:
        stored = here  # nothing contradicts it
    before = stored or replace(here, path=str(directory.with_name(stored_name)), inode=0)
    place = decide_place(before, here, study.copy)
    files = StudyFiles(directory)
    in_database = study.storage is not None or not files.journal.exists()
    if in_database and place.study_uuid != before.study_uuid:
        raise _copy_in_database_error(study)
    if place != read_study_place(directory):
        _write_study_place(files.place, place)
    return place


def settle_place_unlocked(directory: Path, study: StudyConfig) -> StudyPlace | None:
    """Do the same as `settle_place` without the lock; None: no place was stored yet.

    The lock is taken only where the place changes: a running sweep has settled it already.
    """
    stored = read_study_place(directory)
    if stored is None:
        return None
    if decide_place(stored, _current_place(directory, stored.study_uuid), study.copy) == stored:
        return stored
    with StudyDirectory.open(study, must_exist=True):
        return settle_place(directory, study, stored.study_uuid, stored.name)


def settle_restored_place(directory: Path, target: Path, study: StudyConfig) -> bool:
    """Store the place and uuid of a study that was restored in `directory` and goes to `target`.

    Return whether it becomes a study of its own: `study.copy` says so, or the original still stands
    where it was. Raises ConfigError for a copy or another name of a study in a database.
    """
    stored = read_study_place(directory)
    if stored is None:  # it has not begun
        return False
    copy = study.copy
    if copy is None:
        original = read_study_place(Path(stored.path))
        copy = original is not None and original.study_uuid == stored.study_uuid
    here = replace(_current_place(directory, stored.study_uuid), path=str(target.absolute()))
    place = decide_place(replace(stored, inode=0), here, copy)
    if not StudyFiles(directory).journal.exists() and (copy or place.name != stored.name):
        raise _copy_in_database_error(study)
    _write_study_place(StudyFiles(directory).place, place)
    return copy


def decide_place(stored: StudyPlace, here: StudyPlace, copy: bool | None) -> StudyPlace:
    """Return the place from now on of a study that stood at `stored` and stands `here`.

    A directory with the same inode was renamed at most. The device's number alone tells nothing: it
    may change when a disk is mounted again, or from one machine of a cluster to the next.
    """
    same = (stored.device, stored.inode) == (here.device, here.inode)
    if not same and (stored.path, stored.inode) != (here.path, here.inode):
        if copy is None:
            raise _moved_or_copied_error(stored, here)
        if copy:
            return replace(here, study_uuid=uuid.uuid4().hex)
    names = [*stored.former_names, stored.name]
    former_names = tuple(dict.fromkeys(name for name in names if name != here.name))
    return replace(here, study_uuid=stored.study_uuid, former_names=former_names)


def _write_study_place(path: Path, place: StudyPlace) -> None:
    line = seal_line(json.dumps(asdict(place)).encode())
    write_durably(path, line.decode() + "\n")


def read_study_place(directory: Path) -> StudyPlace | None:
    """Return the stored place; None: there is none. Raises StorageError if it cannot be read."""
    path = StudyFiles(directory).place
    try:
        values = read_sealed(path)
        place = StudyPlace(**values | {"former_names": tuple(values["former_names"])})
        if not STUDY_NAME_PATTERN.fullmatch(place.name):
            raise ValueError(f"{place.name} is no name of a study")
        return place
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"{path} cannot be read ({type(error).__name__}); restore it from a copy, or remove it "
            "if this is the only folder of the study."
        ) from error


def _current_place(directory: Path, study_uuid: str) -> StudyPlace:
    status = directory.stat()
    return StudyPlace(study_uuid, str(directory.absolute()), status.st_dev, status.st_ino)


def _moved_or_copied_error(stored: StudyPlace, here: StudyPlace) -> ConfigError:
    return ConfigError(
        f"study.name={here.name}: {here.path} is not where this study was ({stored.path!r}): it "
        "was moved or copied, and nothing tells which. Say it once, with the same command: "
        "copy=false if it was moved (it keeps its runs in MLflow), copy=true if it is "
        "a copy (it gets runs of its own there, and those of the original are not touched)."
    )


def _copy_in_database_error(study: StudyConfig) -> ConfigError:
    return ConfigError(
        "copy=true: the trials of this study are in a database (study.storage), which is not "
        f"copied with its folder. Begin a new study.name in the place of {study.name}, or go on "
        "with this folder alone: copy=false."
    )
