"""Decides which files travel between the sweep and its nodes: trials' files, and the user's code.

A node that does not share the study's folder has a folder of its own that looks like the study's. A
trial's stored files go to the node before the trial begins; its checkpoints come back before they
count as written, and all else that it wrote comes with its outcome. With `study.checkpoint_copies`
the checkpoints go to that store instead, and to the sweep with the outcome.

The working directory goes to the nodes as the user's code, without studies, MLflow's stores,
virtual environments, caches, version control, and files that mostly hold credentials (`.env` and
its like, `.netrc`, `.pgpass`, `*.pem`). The files are carried by messages and by Ray, not here.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from automl.errors import ConfigError, StorageError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.cluster.node_messages import Files
from automl.record.disk import flush_folder, make_folder, open_replacing
from automl.record.lease import FolderTakenOverError, TrialFolderFence
from automl.record.study_files import CONFIG_FILE, EVENTS_FILE, LOGS_FOLDER, trial_log_name
from automl.trial import CheckpointWritten, TrialEvent, TrialOutcome, TrialSpec


def stored_files_of(study: Path, specs: Iterable[TrialSpec]) -> Files:
    """Return the files that the study's folder has of these trials."""
    found: dict[str, bytes] = {}
    for spec in specs:
        for path in _files(Path(spec.checkpoint_dir)):
            found[path.relative_to(study).as_posix()] = path.read_bytes()
    return found


def put_files(study: Path, files: Files, fences: Iterable[TrialFolderFence] = ()) -> None:
    """Write each file under another name, then move it to its place, durably.

    Files in a trial's folder that belongs to another sweep by now are skipped. Raises StorageError.
    """
    for name, content in files.items():
        path = _below(study, name)
        fence = next(
            (f for f in fences if path.is_relative_to(f.folder)), TrialFolderFence(path.parent, 0)
        )
        with suppress(FolderTakenOverError):
            _put(path, content, fence)


def _put(path: Path, content: bytes, fence: TrialFolderFence) -> None:
    try:
        fence.check()
        changed_parents = make_folder(path.parent)
        with open_replacing(path, fence.check) as file:
            file.write(content)
        for folder in (path.parent, *changed_parents):
            flush_folder(folder)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): make room or mend the disk, then "
            "resume the study."
        ) from error


def _below(study: Path, name: str) -> Path:
    """Return the path of a file below the study's folder.

    Raises StorageError for a name that leads elsewhere.
    """
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise StorageError(f"a node sent a file named {name!r}: names are below the study's folder")
    return study / pure


def _files(folder: Path) -> Iterable[Path]:
    return (Path(top) / name for top, _, names in os.walk(folder) for name in names)


class SharedStudyFolder:
    """The study's folder on a node that shares it, so that no files have to travel."""

    def __init__(self, study: str, stored: CheckpointStore | None = None) -> None:
        self.logs = Path(study) / LOGS_FOLDER
        self._stored = stored
        self._specs: dict[int, TrialSpec] = {}

    def receive_trial(self, spec: TrialSpec, files: Files) -> TrialSpec:
        self._specs[spec.number] = spec
        return spec

    def remove(self) -> None:
        """Do nothing: the folder belongs to the sweep."""

    def prepare_event(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """Return the event and no files; store a checkpoint first. Raises StorageError."""
        if self._stored is not None and isinstance(event, CheckpointWritten):
            self._stored.keep(self._specs[event.trial], Path(event.path))
        if isinstance(event, TrialOutcome):
            self._specs.pop(event.trial, None)
        return event, {}


class OwnNodeFolder:
    """A node's own folder, where files of its trials wait to be sent to the sweep."""

    def __init__(self, study: str, here: Path, stored: CheckpointStore | None = None) -> None:
        self._there, self._here, self._stored = Path(study), here, stored
        self.logs = here / LOGS_FOLDER
        self._specs: dict[int, TrialSpec] = {}
        self._sent: dict[Path, tuple[int, int]] = {}
        """Modification time and size of each file when it was last sent or received."""

    def receive_trial(self, spec: TrialSpec, files: Files) -> TrialSpec:
        """Write the files that came for a trial; return the trial with its folder on this node."""
        below = Path(spec.checkpoint_dir).relative_to(self._there)
        own = {name: files[name] for name in files if Path(name).is_relative_to(below)}
        put_files(self._here, own)
        for name in own:
            self._note(self._here / name)
        here = self._specs[spec.number] = replace(spec, checkpoint_dir=str(self._here / below))
        return here

    def remove(self) -> None:
        """Delete the folder: all files that count have arrived at the sweep."""
        shutil.rmtree(self._here, ignore_errors=True)

    def prepare_event(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """Return the event with the sweep's paths, and the files that must arrive before it.

        Raises StorageError.
        """
        if isinstance(event, CheckpointWritten):
            path = Path(event.path)
            files: Files = {}
            if self._stored is not None:
                self._stored.keep(self._specs[event.trial], path)
            else:
                files = self._content([path])
            there = self._there / path.relative_to(self._here)
            return replace(event, path=str(there)), files
        if isinstance(event, TrialOutcome) and event.trial in self._specs:
            written = _files(Path(self._specs.pop(event.trial).checkpoint_dir))
            return event, self._content([*written, self.logs / trial_log_name(event.trial)])
        return event, {}

    def _content(self, paths: Iterable[Path]) -> Files:
        """Return the contents of files that have changed since they were last sent."""
        found: dict[str, bytes] = {}
        for path in paths:
            if path.exists() and self._sent.get(path) != _state(path):
                self._note(path)
                found[path.relative_to(self._here).as_posix()] = path.read_bytes()
        return found

    def _note(self, path: Path) -> None:
        self._sent[path] = _state(path)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


_LEFT_OUT = frozenset(
    [
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        ".hypothesis",
        "node_modules",
        "mlruns",
        "mlartifacts",
        ".netrc",
        ".pgpass",
        ".rayignore",
    ]
)
_N_NAMED = 5


@dataclass(frozen=True)
class CodeFolder:
    """The folder with the user's code that goes to the nodes."""

    folder: Path
    excludes: Sequence[str]
    """Paths to leave out, as patterns of `.gitignore`."""


def find_code(folder: Path, max_bytes: int, without: Collection[Path] = ()) -> CodeFolder:
    """Return the folder without these paths and without files that are no code.

    Raises ConfigError where the rest is larger than `max_bytes`.
    """
    left_out = {path.absolute() for path in without}
    excludes: list[str] = []
    sizes: list[tuple[int, str]] = []
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(top, name)
            if _is_left_out(path) or path.absolute() in left_out:
                excludes.append(f"/{path.relative_to(folder).as_posix()}")
                if name in folders:
                    folders.remove(name)
            elif name in names and path.is_file():
                sizes.append((path.stat().st_size, str(path.relative_to(folder))))
    total = sum(size for size, _ in sizes)
    if total > max_bytes:
        largest = heapq.nlargest(_N_NAMED, sizes)
        listed = ", ".join(f"{name} ({size / 2**20:.3g} MiB)" for size, name in largest)
        raise ConfigError(
            f"the working directory {folder} is {total / 2**20:.0f} MiB, and at most "
            f"{max_bytes // 2**20} go to the nodes of a Ray cluster. Start from a folder with your "
            f"code alone, move what is large elsewhere, or allow more by ray.max_code, which Ray "
            f"has end at 500MiB: {listed}."
        )
    return CodeFolder(folder, excludes)


def _is_left_out(path: Path) -> bool:
    if path.name in _LEFT_OUT or path.name.startswith((".env", "mlflow.db")):
        return True
    if path.suffix == ".pem":
        return True
    is_study = (path / EVENTS_FILE).exists() and (path / CONFIG_FILE).exists()
    return is_study or (path / "pyvenv.cfg").exists()
