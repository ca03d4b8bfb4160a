"""Requests to the sweep of a study, and its answers: one small file each in the study's folder.

Any command of the study's owner writes a request; the sweep that holds the study looks for requests
four times a second, does what they ask for and answers. A request that no sweep has answered waits
for the next sweep. What a request asks for and who does it is decided elsewhere.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from automl.errors import ConfigError, StorageError
from automl.record.append_only import file_error_text
from automl.record.disk import make_folder, write_durably
from automl.record.study_directory import is_study_held
from automl.record.study_files import StudyFiles
from automl.record.texts import parse_json

MAX_REQUEST_BYTES = 1_000_000
"""A larger file is no request; ten thousand enqueued points of five params fit in."""
ANSWER_POLL_SECONDS = 0.02
_REQUEST_SUFFIX = ".request"
_ANSWER_SUFFIX = ".answer"
_STALE_SECONDS = 3600.0
"""An answer that nobody has read for so long is removed: its reader is gone."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyRequest:
    """Something that a command asks the sweep of a study for."""

    kind: str
    arguments: Mapping[str, Any]
    """What is asked for, as plain values of JSON."""
    user: str
    time: float
    id: str = field(default="", compare=False)
    """The unique name of the request's file, without its ending; ids sort by time."""

    def __post_init__(self) -> None:
        texts = isinstance(self.kind, str) and isinstance(self.user, str)
        if not (texts and isinstance(self.arguments, dict) and isinstance(self.time, int | float)):
            raise TypeError(f"{self!r:.100} is no request")


@dataclass(frozen=True)
class RequestAnswer:
    """What the sweep says to a request."""

    text: str
    """The answer for people; where the request was refused: the rule, the value and the remedy."""
    done: bool = True
    """Whether the request was carried out; false: it was refused."""


def write_request(study: Path, kind: str, arguments: Mapping[str, Any]) -> StudyRequest:
    """Write a request into the study at `study`, durably, and return it.

    Raises ConfigError for a study of another user, whose sweep ignores it, and StorageError.
    """
    if StudyFiles(study).config.stat().st_uid != os.geteuid():
        raise ConfigError(
            f"study.name={study.name}: {study} belongs to another user, whose sweep takes requests "
            "of its own user alone; ask its owner."
        )
    now = time.time()
    request = StudyRequest(kind, dict(arguments), getpass.getuser(), now, _make_id(now))
    fields = {name: value for name, value in asdict(request).items() if name != "id"}
    folder = StudyFiles(study).requests
    try:
        make_folder(folder)
        write_durably(folder / f"{request.id}{_REQUEST_SUFFIX}", json.dumps(fields))
    except OSError as error:
        raise StorageError(file_error_text(folder, "written", error)) from error
    return request


def wait_for_answer(
    study: Path, request: StudyRequest, timeout_seconds: float
) -> RequestAnswer | None:
    """Return the answer to a request, once there is one, and remove it.

    None: no answer came in time, or no sweep holds the study (any more); the request stays.
    """
    deadline = time.monotonic() + timeout_seconds
    answer = StudyFiles(study).requests / f"{request.id}{_ANSWER_SUFFIX}"
    asked = answer.with_suffix(_REQUEST_SUFFIX)
    while True:
        may_come = is_study_held(study) and time.monotonic() < deadline
        with suppress(OSError, ValueError):  # not there, or a stranger's
            found = RequestAnswer(**parse_json(_read_own_file(answer)))
            asked.unlink(missing_ok=True)  # a sweep may be killed before it does this
            answer.unlink()
            return found
        if not may_come:
            return None
        time.sleep(ANSWER_POLL_SECONDS)


def answer_request(study: Path, request: StudyRequest, answer: RequestAnswer) -> None:
    """Answer a request and remove it; the caller holds the study. Raises StorageError.

    A kill may come between the deed and the answer, so what cannot be done twice is recorded with
    the request's id.
    """
    folder = StudyFiles(study).requests
    try:
        write_durably(folder / f"{request.id}{_ANSWER_SUFFIX}", json.dumps(asdict(answer)))
        (folder / f"{request.id}{_REQUEST_SUFFIX}").unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(file_error_text(folder, "written", error)) from error


class RequestInbox:
    """Reads the requests of a study for the process that holds the study."""

    def __init__(self, study: Path) -> None:
        self._folder = StudyFiles(study).requests
        self._ignored: set[str] = set()
        """Names of the files that are no request of the study's owner, each logged once."""
        self._remove_stale_answers()

    def pending(self) -> list[StudyRequest]:
        """Return the requests without an answer, the oldest first.

        A file of another user, a link, or no request at all is left where it is, with a warning.
        """
        try:
            names = {*os.listdir(self._folder)} - self._ignored
        except OSError:
            return []
        stems = sorted(
            n.removesuffix(_REQUEST_SUFFIX) for n in names if n.endswith(_REQUEST_SUFFIX)
        )
        requests = (self._read(stem) for stem in stems if f"{stem}{_ANSWER_SUFFIX}" not in names)
        return [request for request in requests if request is not None]

    def _read(self, stem: str) -> StudyRequest | None:
        path = self._folder / f"{stem}{_REQUEST_SUFFIX}"
        try:
            fields = parse_json(_read_own_file(path))
            return StudyRequest(**fields, id=stem)
        except FileNotFoundError:
            return None  # was withdrawn
        except (OSError, ValueError, TypeError) as error:
            self._ignored.add(path.name)
            logger.warning("%s is ignored: it is no request to this study (%s)", path, error)
            return None

    def _remove_stale_answers(self) -> None:
        with suppress(OSError):
            for answer in self._folder.glob(f"*{_ANSWER_SUFFIX}"):
                if time.time() - answer.stat().st_mtime > _STALE_SECONDS:
                    answer.with_suffix(_REQUEST_SUFFIX).unlink(missing_ok=True)
                    answer.unlink()


def _make_id(now: float) -> str:
    return f"{int(now * 1e6):017d}-{secrets.token_hex(4)}"


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
