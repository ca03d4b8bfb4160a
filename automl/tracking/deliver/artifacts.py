"""Stores the files of runs: in a folder of this machine, or through MLflow's client.

A program's files and logged artifacts each stand in a folder of the trial's own, and become
artifacts when the trial has ended. The study may be a stranger's, hence links are left out.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from automl.config import KeepCheckpoints
from automl.record.study_files import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    PROGRAM_FILES_FOLDER,
    StudyFiles,
)
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import STUDY_TAG, TRIAL_TAG, RunUpdate
from automl.tracking.view.trial_run import stored_kinds


class ArtifactsElsewhereError(Exception):
    """Raised when a run's files belong on a disk that this machine does not have."""


class RunArtifacts:
    """Stores the files of a store's runs. One thread at a time may store those of a run."""

    def __init__(self, client: MlflowClient, uri: TrackingUri) -> None:
        self._client = client
        self._uri = uri
        self._places: dict[str, str] = {}
        """Artifact URIs of the runs that are open, kept to save a request for each file."""

    def note(self, run_id: str, place: str) -> None:
        """Note the artifact URI of a run that was just created."""
        self._places[run_id] = place

    def forget(self, run_id: str) -> None:
        """Drop the artifact URI of a run that has ended; `store` can ask for it again."""
        self._places.pop(run_id, None)

    def store(self, run_id: str, path: Path, below: str) -> None:
        """Put the file into the folder `below` of the run's artifacts.

        This takes one request, and one more for a run whose artifact URI is not noted. Raise
        MLflow's errors, OSError and ArtifactsElsewhereError.
        """
        if not (self._uri.is_database or self._uri.is_server):
            self._client.log_artifact(run_id, str(path), below or None)
            return
        if (place := self._places.get(run_id)) is None:
            place = self._places[run_id] = str(self._client.get_run(run_id).info.artifact_uri)
        if (folder := local_folder(place)) is None:
            # The client does the same, after a request for the artifact URI, which is known here.
            repository = get_artifact_repository(place, tracking_uri=self._uri.text)
            repository.log_artifact(str(path), below or None)  # type: ignore[no-untyped-call]
            return
        if self._uri.is_server and not is_folder_here(folder.parents[1], self._uri):
            raise ArtifactsElsewhereError(
                f"artifacts lie at {folder}, on another machine than this"
            )
        place_file(path, folder / below)

    def remove(self, run_id: str, folders: Sequence[str]) -> None:
        """Remove the folders from the run's artifacts. Raise MLflow's errors and OSError."""
        place = str(self._client.get_run(run_id).info.artifact_uri)
        local = local_folder(place)
        for folder in folders:
            if local is not None and not self._uri.is_server:
                shutil.rmtree(local / folder, ignore_errors=True)
            elif self._client.list_artifacts(run_id, folder):
                repository = get_artifact_repository(place, tracking_uri=self._uri.text)
                repository.delete_artifacts(folder)  # type: ignore[no-untyped-call]


def local_folder(place: str) -> Path | None:
    """Return the folder of artifacts on a disk; None for a bucket, or files behind a server."""
    if place.startswith("/"):
        return Path(place)
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme == "file" and not parts.netloc else None


def is_folder_here(folder: Path, uri: TrackingUri) -> bool:
    """Return whether an experiment's folder on a server's disk is on this machine, too.

    The first file creates the folder and its root: before that, the server has to be this machine.
    The machine behind the address of a tunnel cannot be known.
    """
    root = folder.parent
    return root.is_dir() or (
        root.parent.is_dir() and _is_own_host(urlsplit(uri.text).hostname or "")
    )


def _is_own_host(host: str) -> bool:
    """Return whether an address of the host is one of this machine."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: object) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)  # type: ignore[arg-type]
        except OSError:
            return False
    return True


def place_file(path: Path, folder: Path) -> None:
    """Put `path` into `folder`, whole or not at all, as a hard link where the disk is the same.

    Checkpoints are replaced by renaming, never written in place: a hard link keeps its content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{path.name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(path, temporary)
    os.replace(temporary, folder / path.name)


MAX_FILES = 1_000
"""Number of files stored of a folder; a data set's would be stored again for each trial."""
_RESERVED_NAMES = (CHECKPOINTS_FOLDER, PROGRAM_FILES_FOLDER, CONFIG_FILE)
"""Names of the sweep's own files and folders among a run's artifacts."""


def add_own_files(update: RunUpdate, study: Path, number: int, keep: KeepCheckpoints) -> RunUpdate:
    """Return the update of a trial that has ended, with its artifacts and program's files."""
    files = StudyFiles(Path())
    found, refused = list[tuple[str, str]](), list(update.refused)
    for folder, stored in (
        (files.program_files(number), keep is not KeepCheckpoints.none),
        (files.logged_files(number), True),
    ):
        paths = list(islice(_list_files(study / folder), MAX_FILES + 1)) if stored else []
        if len(paths) > MAX_FILES:
            refused.append(f"{folder} has more than {MAX_FILES} files; the others were not stored")
        found += [
            ((folder / path).as_posix(), _folder_in_run(folder, path)) for path in paths[:MAX_FILES]
        ]
    return replace(update, own_files=sorted(found), refused=refused)


def without_removed_files(update: RunUpdate, study: Path, settings: Mapping[str, str]) -> RunUpdate:
    """Return the update without checkpoints that the sweep has removed since, because it keeps only
    those of the best trials."""
    if "study.keep_best" not in settings:
        return update
    return replace(update, artifacts=[p for p in update.artifacts if (study / p).exists()])


def files_update(study: Path, number: int, study_uuid: str, keep: KeepCheckpoints) -> RunUpdate:
    """Return the update with all files of a trial that has ended, from its folder alone."""
    key = {STUDY_TAG: study_uuid, TRIAL_TAG: str(number)}
    update = RunUpdate("", 0, key, {}, {}, begins=False, tags={}, metrics=())
    update = add_own_files(update, study, number, keep)
    paths = (StudyFiles(Path()).checkpoint(number, kind) for kind in stored_kinds(keep))
    checkpoints = [(str(path), CHECKPOINTS_FOLDER) for path in paths if (study / path).exists()]
    return replace(update, own_files=[*checkpoints, *update.own_files])


def _folder_in_run(folder: Path, path: PurePosixPath) -> str:
    """Return the file's folder in the run: the objective's own, unless the sweep uses the name."""
    is_nested = folder.name == PROGRAM_FILES_FOLDER or path.parts[0] in _RESERVED_NAMES
    below = PurePosixPath(folder.name) / path.parent if is_nested else path.parent
    return "" if below == PurePosixPath() else str(below)


def _list_files(folder: Path) -> Iterator[PurePosixPath]:
    """Yield the files below the folder, in order; none if it is a link or does not exist."""
    if folder.is_symlink():
        return
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield PurePosixPath(path.relative_to(folder).as_posix())
