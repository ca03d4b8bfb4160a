"""The place of a study: `place.json` in its directory, by which a copied directory is noticed.

The file travels with a copy, the directory's inode does not. The file also holds the uuid by which
MLflow knows the study: two folders with one uuid would write into the same runs. It is replaced as
a whole, so a process that is killed has written the new place, uuid included, or nothing.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from automl.config import STUDY_NAME_PATTERN, StudyConfig
from automl.errors import ConfigError, StorageError
from automl.record.disk import write_durably
from automl.record.study_directory import StudyDirectory
from automl.record.study_files import StudyFiles

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
        write_durably(files.place, json.dumps(asdict(place)) + "\n")
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


def read_study_place(directory: Path) -> StudyPlace | None:
    """Return the stored place; None: there is none. Raises StorageError if it cannot be read."""
    path = StudyFiles(directory).place
    try:
        values = json.loads(path.read_bytes())
        return StudyPlace(**values | {"former_names": tuple(values["former_names"])})
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
        "study.copy=false if it was moved (it keeps its runs in MLflow), study.copy=true if it is "
        "a copy (it gets runs of its own there, and those of the original are not touched)."
    )


def _copy_in_database_error(study: StudyConfig) -> ConfigError:
    return ConfigError(
        "study.copy=true: the trials of this study are in a database (study.storage), which is not "
        f"copied with its folder. Begin a new study.name in the place of {study.name}, or go on "
        "with this folder alone: study.copy=false."
    )
