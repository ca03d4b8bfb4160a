"""Keeps the checkpoints of a study where every machine finds them (`study.checkpoint_copies`).

    URL/<study's uuid>/trial-00007/00002-00001/last.pt

Each start of a trial writes into a folder of its own, named by its attempt, so that a process that
is cut off but still runs disturbs no other. A file is written under another name and then moved to
its place whole. A process that takes a trial over takes the latest attempt's version of each file,
unless the trial's local folder has been as far: an empty file beside that folder, a mark like
`trial-00007.kept-00002-00001`, names each attempt whose files the folder has stored or fetched.
Other files in the local folder were written later. Clocks are not compared, since the clocks of two
machines differ. Each machine uses its own credentials: from its environment, its profile or its
role.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from automl.errors import ConfigError, StorageError
from automl.record.disk import flush_folder, make_folder, open_replacing
from automl.record.texts import fit_line
from automl.trial import (
    CheckpointWritten,
    ExecutionFeed,
    OnEvents,
    Question,
    Reply,
    TrialEvent,
    TrialSpec,
    Verdict,
    trial_name,
)

CHECK_SECONDS = 5
"""Seconds after which a store at Google is tried no more before a sweep. With the pauses of its
client that is half a minute; Amazon's client gives up by itself after a quarter of a minute."""
SILENT_SECONDS = 3.0
"""Seconds of waiting for a store after which the sweep says so."""
logger = logging.getLogger(__name__)

_PARTIAL = ".part"
"""Ending of a file that is still being written."""
_STORED_FILE = re.compile(r"(\d{5,}-\d{5,})/(.+)")
"""Matches an attempt and one of its files, below a trial's folder in the store."""


@dataclass(frozen=True)
class CheckpointStore:
    """A store for a study's checkpoints. Picklable: each process opens it for itself."""

    url: str
    study_uuid: str

    def check(self) -> None:
        """Raise ConfigError unless a file can be written to the store and deleted again.

        Say that the store is waited for, if it does not answer at once. Google's client tries for a
        quarter of an hour, which is right for a checkpoint and too long for somebody who mistyped
        an address: here it gives up sooner.
        """
        name, store = f"{self._root}/.automl-{secrets.token_hex(8)}", self
        if self.url.startswith("gs://"):
            limit = f"{'&' if '?' in self.url else '?'}retry_limit_seconds={CHECK_SECONDS}"
            store = replace(self, url=self.url + limit)
        text = (
            f"study.checkpoint_copies={self.url}: waiting for its answer, for half a minute or so"
        )
        silence = threading.Timer(SILENT_SECONDS, logger.warning, (text,))
        silence.start()
        try:
            store._put(name, b"Written to see whether this can be; it may be deleted.")
            store._files.delete_file(name)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"study.checkpoint_copies={self.url}: no checkpoint can be kept there "
                f"({fit_line(str(error))}): mend the address, or the credentials that the "
                "environment of this process names."
            ) from error
        finally:
            silence.cancel()

    def keep(self, spec: TrialSpec, path: Path) -> None:
        """Store a file that this start of the trial has written below its local folder.

        Raises StorageError.
        """
        folder = Path(spec.checkpoint_dir)
        name, attempt = path.relative_to(folder).as_posix(), _attempt(spec)
        try:
            self._put(f"{self._folder(spec.number)}/{attempt}/{name}", path.read_bytes())
            _mark(folder, attempt).touch()
        except OSError as error:
            raise self._storage_error(error) from error

    def bring(self, spec: TrialSpec) -> None:
        """Fetch the trial's files that are missing locally, or come from an attempt without a mark.

        Raises StorageError.
        """
        folder = Path(spec.checkpoint_dir)
        try:
            latest = self._latest(spec.number)
            newest_mark = _newest_mark(folder)
            for name, (attempt, stored_path) in latest.items():
                if attempt > newest_mark or not (folder / name).exists():
                    self._fetch(stored_path, folder / name)
            if latest:  # only when all files are here: a process that ends half-way fetches again
                _mark(folder, max(attempt for attempt, _ in latest.values())).touch()
        except OSError as error:
            raise self._storage_error(error) from error

    def around(self, feed: ExecutionFeed, on_events: OnEvents) -> tuple[ExecutionFeed, OnEvents]:
        """Wrap the feed and the events of an execution on this machine; both raise StorageError.

        A trial's stored files are fetched to its folder before it begins, and each checkpoint is
        stored before it counts as written.
        """
        fetching = _CheckpointFetchingSource(feed, self)

        def keep_checkpoints(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            for event in events:
                if isinstance(event, CheckpointWritten):
                    self.keep(fetching.specs[event.trial], Path(event.path))
            return on_events(events)

        return fetching, keep_checkpoints

    def _latest(self, trial: int) -> Mapping[str, tuple[str, str]]:
        """Return, by file name, the latest attempt that wrote the file, and its stored path."""
        from pyarrow.fs import FileSelector, FileType

        root = self._folder(trial)
        selector = FileSelector(root, recursive=True, allow_not_found=True)
        found: dict[str, tuple[str, str]] = {}
        for info in self._files.get_file_info(selector):
            match = _STORED_FILE.fullmatch(info.path.removeprefix(f"{root}/"))
            if match and info.type == FileType.File and not info.path.endswith(_PARTIAL):
                attempt, name = match.groups()
                if ".." not in name.split("/"):
                    found[name] = max(found.get(name, ("", "")), (attempt, info.path))
        return found

    def _fetch(self, stored_path: str, path: Path) -> None:
        changed_parents = make_folder(path.parent)
        with self._files.open_input_stream(stored_path) as stream, open_replacing(path) as file:
            file.write(stream.read())
        for changed in (path.parent, *changed_parents):
            flush_folder(changed)

    def _put(self, name: str, content: bytes) -> None:
        """Write a file to the store whole or not at all, whenever this process ends."""
        partial = f"{name}.{secrets.token_hex(8)}{_PARTIAL}"
        self._files.create_dir(name.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(partial) as stream:
            stream.write(content)
        self._files.move(partial, name)

    def _folder(self, trial: int) -> str:
        return f"{self._root}/{self.study_uuid}/{trial_name(trial)}"

    def _storage_error(self, error: Exception) -> StorageError:
        return StorageError(
            f"study.checkpoint_copies={self.url}: {fit_line(str(error))}: mend that, then resume "
            "the study."
        )

    @property
    def _files(self) -> Any:
        return self._opened[0]

    @property
    def _root(self) -> str:
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """pyarrow's file system, and the store's path in it. Raises ConfigError."""
        from pyarrow.fs import FileSystem

        try:
            files, path = FileSystem.from_uri(self.url)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"study.checkpoint_copies={self.url}: {fit_line(str(error))}: name a folder as "
                "s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH."
            ) from error
        return files, path.rstrip("/")

    def __getstate__(self) -> Mapping[str, str]:
        return {"url": self.url, "study_uuid": self.study_uuid}


def _attempt(spec: TrialSpec) -> str:
    """Name this start of a trial; names sort as text in the order of the starts."""
    return f"{spec.attempt:05d}-{spec.n_starts:05d}"


def _mark(folder: Path, attempt: str) -> Path:
    """Return the path of the empty file that marks an attempt as stored or fetched.

    Marks never change, and each attempt has its own, so a process that was cut off cannot undo a
    mark. They are not flushed: where one is lost, the same files are fetched again.
    """
    return folder.with_name(f"{folder.name}.kept-{attempt}")


def _newest_mark(folder: Path) -> str:
    """Return the latest attempt that is marked for the folder; empty if there is none."""
    begin = _mark(folder, "").name
    return max((p.name.removeprefix(begin) for p in folder.parent.glob(f"{begin}*")), default="")


class _CheckpointFetchingSource:
    """Feeds trials, and fetches a trial's stored files to its folder when the trial is taken."""

    def __init__(self, feed: ExecutionFeed, stored: CheckpointStore) -> None:
        self._feed, self._stored = feed, stored
        self.key, self.n_lanes = feed.key, feed.n_lanes
        self.specs: dict[int, TrialSpec] = {}
        """Specs of the trials that were taken, by number."""

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
