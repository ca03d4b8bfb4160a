"""Checkpoints of a study kept where every machine finds them (`study.checkpoints`).

    URL/<study's uuid>/trial-00007/00002-00001/last.pt

Each start of a trial writes into a folder of its own, named by its attempt, so that one who was cut
off and goes on for a while disturbs nobody. A file is written beside and put in its place whole.
Whoever takes a trial over takes of each file the one of the latest attempt, unless the trial's
folder here has been as far: an empty file beside it, `trial-00007.kept-00002-00001`, names each
attempt whose files it has put there or brought. What such a folder has besides was written later.
No clock is asked, as those of two machines differ. Credentials are those that each machine has for
itself: in its environment, its profile, its role.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from automl.errors import ConfigError, StorageError
from automl.record.disk import flush_folder, make_folder, open_replacing
from automl.record.texts import fit_line
from automl.trial import (
    AnsweringTrialSource,
    CheckpointWritten,
    OnEvents,
    Question,
    Reply,
    TrialEvent,
    TrialSpec,
    Verdict,
    trial_name,
)

_BESIDE = ".part"
_KEPT = re.compile(r"(\d{5,}-\d{5,})/(.+)")
"""An attempt and a file of it, below a trial's folder there."""


@dataclass(frozen=True)
class CheckpointStore:
    """A place for checkpoints. Picklable: each process opens it for itself."""

    url: str
    study_uuid: str

    def check(self) -> None:
        """Raises ConfigError unless a file can be put there and taken away again."""
        name = f"{self._root}/.automl-{secrets.token_hex(8)}"
        try:
            self._put(name, b"Written to see whether this can be; it may be deleted.")
            self._files.delete_file(name)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"study.checkpoints={self.url}: no checkpoint can be kept there "
                f"({fit_line(str(error))}): mend the address, or the credentials that the "
                "environment of this process names."
            ) from error

    def keep(self, spec: TrialSpec, path: Path) -> None:
        """A file that this start of the trial has written below its folder. Raises StorageError."""
        folder = Path(spec.checkpoint_dir)
        name, attempt = path.relative_to(folder).as_posix(), _attempt(spec)
        try:
            self._put(f"{self._folder(spec.number)}/{attempt}/{name}", path.read_bytes())
            _mark(folder, attempt).touch()
        except OSError as error:
            raise self._away(error) from error

    def bring(self, spec: TrialSpec) -> None:
        """What is kept of the trial by later attempts than its folder has been told of, and what
        the folder lacks. Raises StorageError."""
        folder = Path(spec.checkpoint_dir)
        try:
            latest = self._latest(spec.number)
            had = _newest_mark(folder)
            for name, (attempt, there) in latest.items():
                if attempt > had or not (folder / name).exists():
                    self._fetch(there, folder / name)
            if latest:  # and not before all are there: who ends half-way begins again
                _mark(folder, max(attempt for attempt, _ in latest.values())).touch()
        except OSError as error:
            raise self._away(error) from error

    def around(
        self, feed: AnsweringTrialSource, on_events: OnEvents
    ) -> tuple[AnsweringTrialSource, OnEvents]:
        """For an executor of this machine: what is kept of a trial is in its folder before it
        begins, and each checkpoint is kept before it counts as written. Both raise StorageError."""
        bringing = _FetchingTrialSource(feed, self)

        def kept(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            for event in events:
                if isinstance(event, CheckpointWritten):
                    self.keep(bringing.specs[event.trial], Path(event.path))
            return on_events(events)

        return bringing, kept

    def _latest(self, trial: int) -> Mapping[str, tuple[str, str]]:
        """Of each file the latest attempt which wrote it, and where that one is."""
        from pyarrow.fs import FileSelector, FileType

        root = self._folder(trial)
        selector = FileSelector(root, recursive=True, allow_not_found=True)
        found: dict[str, tuple[str, str]] = {}
        for info in self._files.get_file_info(selector):
            kept = _KEPT.fullmatch(info.path.removeprefix(f"{root}/"))
            if kept and info.type == FileType.File and not info.path.endswith(_BESIDE):
                attempt, name = kept.groups()
                if ".." not in name.split("/"):
                    found[name] = max(found.get(name, ("", "")), (attempt, info.path))
        return found

    def _fetch(self, there: str, path: Path) -> None:
        new_in = make_folder(path.parent)
        with self._files.open_input_stream(there) as stream, open_replacing(path) as file:
            file.write(stream.read())
        for changed in (path.parent, *new_in):
            flush_folder(changed)

    def _put(self, name: str, content: bytes) -> None:
        """Whole or not at all, whenever this process ends."""
        beside = f"{name}.{secrets.token_hex(8)}{_BESIDE}"
        self._files.create_dir(name.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(beside) as stream:
            stream.write(content)
        self._files.move(beside, name)

    def _folder(self, trial: int) -> str:
        return f"{self._root}/{self.study_uuid}/{trial_name(trial)}"

    def _away(self, error: Exception) -> StorageError:
        return StorageError(
            f"study.checkpoints={self.url}: {fit_line(str(error))}: mend that, then resume the "
            "study."
        )

    @property
    def _files(self) -> Any:
        return self._opened[0]

    @property
    def _root(self) -> str:
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """pyarrow's file system, and the path there. Raises ConfigError."""
        from pyarrow.fs import FileSystem

        try:
            files, path = FileSystem.from_uri(self.url)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"study.checkpoints={self.url}: {fit_line(str(error))}: name a folder as "
                "s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH."
            ) from error
        return files, path.rstrip("/")

    def __getstate__(self) -> Mapping[str, str]:
        return {"url": self.url, "study_uuid": self.study_uuid}


def _attempt(spec: TrialSpec) -> str:
    """In the order of the attempts, as text."""
    return f"{spec.attempt:05d}-{spec.n_starts:05d}"


def _mark(folder: Path, attempt: str) -> Path:
    """Never changed, and one for each attempt, so that one who was cut off takes none back. It is
    not flushed: without it the same is brought again."""
    return folder.with_name(f"{folder.name}.kept-{attempt}")


def _newest_mark(folder: Path) -> str:
    """Of the latest attempt; empty: there is none."""
    begin = _mark(folder, "").name
    return max((p.name.removeprefix(begin) for p in folder.parent.glob(f"{begin}*")), default="")


class _FetchingTrialSource:
    """Brings what is kept of a trial to its folder as the trial is taken."""

    def __init__(self, feed: AnsweringTrialSource, stored: CheckpointStore) -> None:
        self._feed, self._stored = feed, stored
        self.n_lanes = feed.n_lanes
        self.specs: dict[int, TrialSpec] = {}
        """Of the trials that were taken."""

    def ahead(self) -> Sequence[TrialSpec]:
        return self._feed.ahead()

    def next(self) -> TrialSpec | None:
        spec = self._feed.next()
        if spec is not None:
            self.specs[spec.number] = spec
            if not spec.is_first:
                self._stored.bring(spec)
        return spec

    def answer(self, question: Question) -> Reply:
        return self._feed.answer(question)
