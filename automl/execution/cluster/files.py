"""What trials write on a node that has no part in the study's folder, and how it gets there.

A node then has a folder of its own that looks like the study's. What is kept of a trial goes to it
before it begins; its checkpoints come back before they count as written, and what else it wrote
with its outcome. With `study.checkpoints` they go there instead, and to the sweep with the outcome.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from automl.errors import StorageError
from automl.execution.cluster.messages import Files
from automl.execution.stored import Stored
from automl.record.disk import flush_folder, make_folder, replacing
from automl.record.fence import Fence, OthersFolderError
from automl.record.files import LOGS, log_name
from automl.trial import Checkpointed, Outcome, TrialEvent, TrialSpec


def kept_of(study: Path, specs: Iterable[TrialSpec]) -> Files:
    """What the study's folder has of these trials."""
    found: dict[str, bytes] = {}
    for spec in specs:
        for path in _files(Path(spec.checkpoint_dir)):
            found[path.relative_to(study).as_posix()] = path.read_bytes()
    return found


def put(study: Path, files: Files, fences: Iterable[Fence] = ()) -> None:
    """Write each beside and put it in its place, durably; but for those in a trial's folder that is
    another sweep's by now. Raises StorageError."""
    for name, content in files.items():
        path = _below(study, name)
        fence = next((f for f in fences if path.is_relative_to(f.folder)), Fence(path.parent, 0))
        with suppress(OthersFolderError):
            _put(path, content, fence)


def _put(path: Path, content: bytes, fence: Fence) -> None:
    try:
        fence.check()
        new_in = make_folder(path.parent)
        with replacing(path, fence.check) as file:
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


class SharedFolder:
    """The node sees the study's folder: nothing has to travel."""

    def __init__(self, study: str, stored: Stored | None = None) -> None:
        self.logs = Path(study) / LOGS
        self._stored = stored
        self._specs: dict[int, TrialSpec] = {}

    def arrived(self, spec: TrialSpec, files: Files) -> TrialSpec:
        self._specs[spec.number] = spec
        return spec

    def remove(self) -> None:
        """It is the sweep's."""

    def told(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """As `OwnFolder.told`. Raises StorageError."""
        if self._stored is not None and isinstance(event, Checkpointed):
            self._stored.keep(self._specs[event.trial], Path(event.path))
        if isinstance(event, Outcome):
            self._specs.pop(event.trial, None)
        return event, {}


class OwnFolder:
    """The node has one of its own, where what its trials write waits to be sent."""

    def __init__(self, study: str, here: Path, stored: Stored | None = None) -> None:
        self._there, self._here, self._stored = Path(study), here, stored
        self.logs = here / LOGS
        self._specs: dict[int, TrialSpec] = {}
        self._sent: dict[Path, tuple[int, int]] = {}
        """Time and size of each file as it was sent, or came."""

    def arrived(self, spec: TrialSpec, files: Files) -> TrialSpec:
        """The trial as it is to be carried out here, with the files that came for it."""
        below = Path(spec.checkpoint_dir).relative_to(self._there)
        own = {name: files[name] for name in files if Path(name).is_relative_to(below)}
        put(self._here, own)
        for name in own:
            self._note(self._here / name)
        here = self._specs[spec.number] = replace(spec, checkpoint_dir=str(self._here / below))
        return here

    def remove(self) -> None:
        """Nothing of it is wanted any more: what counts has arrived."""
        shutil.rmtree(self._here, ignore_errors=True)

    def told(self, event: TrialEvent) -> tuple[TrialEvent, Files]:
        """The event as the sweep takes it, and the files to take before. Raises StorageError."""
        if isinstance(event, Checkpointed):
            path = Path(event.path)
            files: Files = {}
            if self._stored is not None:
                self._stored.keep(self._specs[event.trial], path)
            else:
                files = self._content([path])
            there = self._there / path.relative_to(self._here)
            return replace(event, path=str(there)), files
        if isinstance(event, Outcome) and event.trial in self._specs:
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
