"""What trials write on a node that has no part in the study's folder, and how it gets there.

A node then has a folder of its own that looks like the study's. What is kept of a trial goes to it
before it begins; its checkpoints come back before they count as written, and what else it wrote
with its outcome. With `study.checkpoints` they go there instead, and to the sweep with the outcome.

Which of the working directory goes to the nodes: the user's code, and not what it made.

Left out are studies, MLflow's stores, virtual environments, caches, version control, and what
mostly holds credentials (`.env` and its like, `.netrc`, `.pgpass`, `*.pem`).
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
from automl.record.lease import OthersFolderError, TrialFolderFence
from automl.record.study_files import CONFIG, EVENTS, LOGS, log_name
from automl.trial import CheckpointWritten, TrialEvent, TrialOutcome, TrialSpec


def stored_files_of(study: Path, specs: Iterable[TrialSpec]) -> Files:
    """What the study's folder has of these trials."""
    found: dict[str, bytes] = {}
    for spec in specs:
        for path in _files(Path(spec.checkpoint_dir)):
            found[path.relative_to(study).as_posix()] = path.read_bytes()
    return found


def put_files(study: Path, files: Files, fences: Iterable[TrialFolderFence] = ()) -> None:
    """Write each beside and put it in its place, durably; but for those in a trial's folder that is
    another sweep's by now. Raises StorageError."""
    for name, content in files.items():
        path = _below(study, name)
        fence = next(
            (f for f in fences if path.is_relative_to(f.folder)), TrialFolderFence(path.parent, 0)
        )
        with suppress(OthersFolderError):
            _put(path, content, fence)


def _put(path: Path, content: bytes, fence: TrialFolderFence) -> None:
    try:
        fence.check()
        new_in = make_folder(path.parent)
        with open_replacing(path, fence.check) as file:
            file.write(content)
        for folder in (path.parent, *new_in):
            flush_folder(folder)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): make room or mend the disk, then "
            "resume the study."
        ) from error


def _below(study: Path, name: str) -> Path:
    """Raises StorageError for a name that leads elsewhere."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise StorageError(f"a node sent a file named {name!r}: names are below the study's folder")
    return study / pure


def _files(folder: Path) -> Iterable[Path]:
    return (Path(top) / name for top, _, names in os.walk(folder) for name in names)


class SharedStudyFolder:
    """The node sees the study's folder: nothing has to travel."""

    def __init__(self, study: str, stored: CheckpointStore | None = None) -> None:
        self.logs = Path(study) / LOGS
        self._stored = stored
        self._specs: dict[int, TrialSpec] = {}

    def arrived(self, spec: TrialSpec, files: Files) -> TrialSpec:
        self._specs[spec.number] = spec
        return spec

    def remove(self) -> None:
        """It is the sweep's."""

    def told(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """As `OwnNodeFolder.told`. Raises StorageError."""
        if self._stored is not None and isinstance(event, CheckpointWritten):
            self._stored.keep(self._specs[event.trial], Path(event.path))
        if isinstance(event, TrialOutcome):
            self._specs.pop(event.trial, None)
        return event, {}


class OwnNodeFolder:
    """The node has one of its own, where what its trials write waits to be sent."""

    def __init__(self, study: str, here: Path, stored: CheckpointStore | None = None) -> None:
        self._there, self._here, self._stored = Path(study), here, stored
        self.logs = here / LOGS
        self._specs: dict[int, TrialSpec] = {}
        self._sent: dict[Path, tuple[int, int]] = {}
        """Time and size of each file as it was sent, or came."""

    def arrived(self, spec: TrialSpec, files: Files) -> TrialSpec:
        """The trial as it is to be carried out here, with the files that came for it."""
        below = Path(spec.checkpoint_dir).relative_to(self._there)
        own = {name: files[name] for name in files if Path(name).is_relative_to(below)}
        put_files(self._here, own)
        for name in own:
            self._note(self._here / name)
        here = self._specs[spec.number] = replace(spec, checkpoint_dir=str(self._here / below))
        return here

    def remove(self) -> None:
        """Nothing of it is wanted any more: what counts has arrived."""
        shutil.rmtree(self._here, ignore_errors=True)

    def told(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """The event as the sweep takes it, and the files to take before. Raises StorageError."""
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
            return event, self._content([*written, self.logs / log_name(event.trial)])
        return event, {}

    def _content(self, paths: Iterable[Path]) -> Files:
        """Of those that changed since they were sent."""
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
    """A folder to take along."""

    folder: Path
    excludes: Sequence[str]
    """As `.gitignore` has them."""


def code_of(folder: Path, max_bytes: int, without: Collection[Path] = ()) -> CodeFolder:
    """The folder without what is no code, nor one of these paths. Raises ConfigError where it is
    more than `max_bytes`."""
    away = {path.absolute() for path in without}
    excludes: list[str] = []
    sizes: list[tuple[int, str]] = []
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(top, name)
            if _is_left_out(path) or path.absolute() in away:
                excludes.append(f"/{path.relative_to(folder).as_posix()}")
                if name in folders:
                    folders.remove(name)
            elif name in names and path.is_file():
                sizes.append((path.stat().st_size, str(path.relative_to(folder))))
    total = sum(size for size, _ in sizes)
    if total > max_bytes:
        largest = heapq.nlargest(_N_NAMED, sizes)
        listed = ", ".join(f"{name} ({size / 2**20:.0f} MiB)" for size, name in largest)
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
    is_study = (path / EVENTS).exists() and (path / CONFIG).exists()
    return is_study or (path / "pyvenv.cfg").exists()
