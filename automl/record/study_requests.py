"""Requests to the sweeps of a study, and their answers: the contract, and its queue in a folder.

Any command of the study's owner writes a request; a sweep at work looks for requests, does what
they ask for and answers. A request that no sweep has answered waits for the next sweep. What a
request asks for and who does it is decided elsewhere. The queue of a shared study is in
`sharing/shared_requests.py`.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import secrets
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from automl.errors import ConfigError, StorageError
from automl.record.append_only import file_error_text, parse_sealed_line, seal_line
from automl.record.disk import make_folder, write_durably
from automl.record.studies import is_study_held
from automl.record.study_files import StudyFiles
from automl.record.texts import parse_json

MAX_REQUEST_BYTES = 1_000_000
"""A larger file is no request; ten thousand enqueued points of five params fit in."""
_REQUEST_SUFFIX = ".request"
_ANSWER_SUFFIX = ".answer"
STALE_SECONDS = 3600.0
"""An answer that stays unread for this long is removed: its reader is gone."""
EDIT = "edit"
"""The kind of a request that asks for an edit of the study."""
_FOR_SWEEPS = ("pause", "resume", "stop")
"""Kinds of requests to the sweeps at work, which mean nothing to a later one."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyRequest:
    """Something that a command asks the sweep of a study for."""

    kind: str
    arguments: Mapping[str, Any]
    """The arguments of the request, as plain values of JSON."""
    user: str
    time: float
    id: str = field(default="", compare=False)
    """The unique name of the request's file, without its ending; ids sort by time."""

    def __post_init__(self) -> None:
        texts = isinstance(self.kind, str) and isinstance(self.user, str)
        if not (texts and isinstance(self.arguments, dict) and isinstance(self.time, int | float)):
            raise TypeError(f"{self!r:.100} is no request")

    @property
    def is_for_sweeps(self) -> bool:
        """Whether each sweep at work does it for itself, and no later one."""
        return self.kind in _FOR_SWEEPS and self.arguments.get("trial") is None

    def text(self) -> str:
        """Return the request as a line of JSON with a checksum, without its id."""
        fields = {name: value for name, value in asdict(self).items() if name != "id"}
        return seal_line(json.dumps(fields, separators=(",", ":")).encode()).decode()

    @classmethod
    def from_text(cls, line: bytes, request_id: str) -> StudyRequest:
        """Raises ValueError and TypeError for a line that is no request."""
        return cls(**parse_sealed_line(line), id=request_id)


@dataclass(frozen=True)
class RequestAnswer:
    """The answer of the sweep to a request."""

    text: str
    """The answer for people; where the request was refused: the rule, the value and the remedy."""
    done: bool = True
    """Whether the request was carried out; false: it was refused."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The answer for programs, as plain values of JSON, where the text does not have all of it."""


class RequestQueue(ABC):
    """The requests to the sweeps of one study and their answers, wherever they are kept.

    A command uses `write`, `is_served` and `wait_for_answer`, a sweep `pending` and `answer`. All
    but `wait_for_answer` raise StorageError.
    """

    poll_seconds: ClassVar[float]
    """How often an answer is looked for."""
    since: float = 0.0
    """When this sweep began to take requests, by the clock of `StudyRequest.time`."""

    @abstractmethod
    def write(self, kind: str, arguments: Mapping[str, Any]) -> StudyRequest:
        """Write a request, durably, and return it. Raises ConfigError for a study of another
        user, whose sweeps ignore it."""

    @abstractmethod
    def is_served(self) -> bool:
        """Return whether a sweep is at work that answers."""

    @abstractmethod
    def take_answer(self, request: StudyRequest, *, is_late: bool = False) -> RequestAnswer | None:
        """Return the answer and remove the request; None: there is no answer yet.

        `is_late`: of several sweeps that have to answer those that have are enough.
        """

    @abstractmethod
    def withdraw(self, request: StudyRequest) -> None:
        """Remove a request that nobody has answered."""

    @abstractmethod
    def pending(self) -> list[StudyRequest]:
        """Return the requests without an answer, the oldest first.

        Files of another user, and files that are no requests, stay where they are, with a warning.
        """

    @abstractmethod
    def answer(self, request: StudyRequest, answer: RequestAnswer) -> None:
        """Answer a request, which is then no longer pending for this sweep.

        A kill may come between the deed and the answer, so what cannot be done twice is recorded
        with the request's id.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def wait_for_answer(
        self, request: StudyRequest, timeout_seconds: float
    ) -> RequestAnswer | None:
        """Return the answer to a request, once there is one, and remove both.

        None: no answer came in time, or no sweep is at work (any more); the request stays.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            is_late = not self.is_served() or time.monotonic() >= deadline
            found = self.take_answer(request, is_late=is_late)
            if found is not None or is_late:
                return found
            time.sleep(self.poll_seconds)


def make_request(kind: str, arguments: Mapping[str, Any]) -> StudyRequest:
    """Return a request of this user, with an id of its own."""
    now = time.time()
    request_id = f"{int(now * 1e6):017d}-{secrets.token_hex(4)}"
    return StudyRequest(kind, dict(arguments), getpass.getuser(), now, request_id)


class FolderRequestQueue(RequestQueue):
    """Requests as small files in the study's folder, for the one sweep that holds the folder."""

    poll_seconds = 0.02

    def __init__(self, study: Path, since: float = 0.0) -> None:
        self._study, self.since = study, since
        self._folder = StudyFiles(study).requests
        self._ignored: set[str] = set()
        """Names of the files that are no request of the study's owner, each logged once."""
        self._remove_stale_answers()

    def write(self, kind: str, arguments: Mapping[str, Any]) -> StudyRequest:
        if StudyFiles(self._study).config.stat().st_uid != os.geteuid():
            raise ConfigError(
                f"study.name={self._study.name}: {self._study} belongs to another user, whose "
                "sweep takes requests of its own user alone; ask its owner."
            )
        request = make_request(kind, arguments)
        try:
            make_folder(self._folder)
            write_durably(self._asked(request), request.text())
        except OSError as error:
            raise StorageError(file_error_text(self._folder, "written", error)) from error
        return request

    def is_served(self) -> bool:
        return is_study_held(self._study)

    def take_answer(self, request: StudyRequest, *, is_late: bool = False) -> RequestAnswer | None:
        answer = self._asked(request).with_suffix(_ANSWER_SUFFIX)
        with suppress(OSError, ValueError):  # not there, or a stranger's
            found = RequestAnswer(**parse_json(_read_own_file(answer)))
            self._asked(request).unlink(missing_ok=True)  # a sweep may be killed before it does
            answer.unlink()
            return found
        return None

    def withdraw(self, request: StudyRequest) -> None:
        with suppress(OSError):
            self._asked(request).unlink(missing_ok=True)

    def pending(self) -> list[StudyRequest]:
        try:
            names = {*os.listdir(self._folder)} - self._ignored
        except OSError:
            return []
        stems = sorted(
            n.removesuffix(_REQUEST_SUFFIX) for n in names if n.endswith(_REQUEST_SUFFIX)
        )
        requests = (self._read(stem) for stem in stems if f"{stem}{_ANSWER_SUFFIX}" not in names)
        return [request for request in requests if request is not None]

    def answer(self, request: StudyRequest, answer: RequestAnswer) -> None:
        asked = self._asked(request)
        try:
            write_durably(asked.with_suffix(_ANSWER_SUFFIX), json.dumps(asdict(answer)))
            asked.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(file_error_text(self._folder, "written", error)) from error

    def close(self) -> None:
        """Do nothing, since no file is open."""

    def _asked(self, request: StudyRequest) -> Path:
        return self._folder / f"{request.id}{_REQUEST_SUFFIX}"

    def _read(self, stem: str) -> StudyRequest | None:
        path = self._folder / f"{stem}{_REQUEST_SUFFIX}"
        try:
            return StudyRequest.from_text(_read_own_file(path), stem)
        except FileNotFoundError:
            return None  # was withdrawn
        except (OSError, ValueError, TypeError) as error:
            self._ignored.add(path.name)
            logger.warning("%s is ignored: it is no request to this study (%s)", path, error)
            return None

    def _remove_stale_answers(self) -> None:
        with suppress(OSError):
            for answer in self._folder.glob(f"*{_ANSWER_SUFFIX}"):
                if time.time() - answer.stat().st_mtime > STALE_SECONDS:
                    answer.with_suffix(_REQUEST_SUFFIX).unlink(missing_ok=True)
                    answer.unlink()


def _read_own_file(path: Path) -> bytes:
    """Return the content of a plain file of this user. Raises OSError and ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise ValueError(f"it belongs to user {status.st_uid}")
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_REQUEST_BYTES:
            raise ValueError(f"it is no file of at most {MAX_REQUEST_BYTES} bytes")
        return file.read(MAX_REQUEST_BYTES)
