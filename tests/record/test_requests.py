"""Requests to the sweep of a study: seen whole, from its owner, and gone once answered."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record import study_requests
from automl.record.study_directory import StudyDirectory
from automl.record.study_files import StudyFiles
from automl.record.study_requests import (
    MAX_REQUEST_BYTES,
    RequestAnswer,
    RequestInbox,
    answer_request,
    wait_for_answer,
    write_request,
)
from tests.flips import one_bit_flipped, torn_ends


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "calm-crane"
    path.mkdir()
    (path / "config.yaml").touch()
    return path


def held(study: Path) -> StudyDirectory:
    return StudyDirectory.open(StudyConfig(name=study.name, dir=str(study.parent)), must_exist=True)


def files(study: Path) -> list[str]:
    return sorted(path.name for path in StudyFiles(study).requests.iterdir())


def test_a_request_pends_until_it_is_answered_and_its_answer_is_read_once(study: Path) -> None:
    with held(study):
        request = write_request(study, "stop", {"trial": 7})
        inbox = RequestInbox(study)
        assert inbox.pending() == inbox.pending() == [request]
        assert (request.kind, request.arguments) == ("stop", {"trial": 7})
        assert wait_for_answer(study, request, timeout_seconds=0) is None
        answer_request(study, request, RequestAnswer("trial 7 has ended", done=False))
        assert inbox.pending() == []
        answer = wait_for_answer(study, request, timeout_seconds=60)
        assert answer == RequestAnswer("trial 7 has ended", done=False)
    assert files(study) == []


def test_a_request_whose_answer_was_written_before_a_kill_is_not_done_again(study: Path) -> None:
    request = write_request(study, "stop", {"trial": 7, "as": "interrupted"})
    asked = StudyFiles(study).requests / f"{request.id}.request"
    text = asked.read_text()
    answer_request(study, request, RequestAnswer("trial 7 stops"))
    asked.write_text(text)  # the kill came before it was removed
    assert RequestInbox(study).pending() == []
    assert wait_for_answer(study, request, timeout_seconds=60) == RequestAnswer("trial 7 stops")
    assert files(study) == []


def test_a_command_waits_for_the_answer_of_a_sweep_at_work(study: Path) -> None:
    with held(study):
        request = write_request(study, "pause", {})
        found: list[RequestAnswer | None] = []
        waiting = threading.Thread(
            target=lambda: found.append(wait_for_answer(study, request, timeout_seconds=60))
        )
        waiting.start()
        answer_request(study, RequestInbox(study).pending()[0], RequestAnswer("paused"))
        waiting.join(60)
    assert found == [RequestAnswer("paused")]


def test_no_answer_is_waited_for_where_no_sweep_holds_the_study(study: Path) -> None:
    request = write_request(study, "pause", {})
    assert wait_for_answer(study, request, timeout_seconds=3600) is None
    assert RequestInbox(study).pending() == [request]  # for the next sweep


def test_requests_come_in_the_order_in_which_they_were_made(study: Path) -> None:
    made = [write_request(study, "stop", {"trial": n}) for n in range(20)]
    assert [request.arguments["trial"] for request in RequestInbox(study).pending()] == [*range(20)]
    assert len({request.id for request in made}) == 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_request_of_another_user_is_ignored_and_said_once(
    study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = write_request(study, "stop", {"trial": 7})
    path = StudyFiles(study).requests / f"{request.id}.request"
    os.chown(path, 12345, 12345)
    inbox = RequestInbox(study)
    assert inbox.pending() == inbox.pending() == []
    assert [record.message for record in caplog.records] == [
        f"{path} is ignored: it is no request to this study (it belongs to user 12345)"
    ]
    os.chown(study / "config.yaml", 12345, 12345)
    with pytest.raises(ConfigError, match=r"belongs to another user.*ask its owner"):
        write_request(study, "stop", {"trial": 7})


NO_REQUESTS = [
    "{",
    "[]",
    "{}",
    '{"kind": 1, "arguments": {}, "user": "a", "time": 0}',
    "x" * (MAX_REQUEST_BYTES + 1),
]


def test_a_damaged_request_is_the_same_one_or_named_and_ignored(
    study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = write_request(study, "enqueue", {"points": [{"lr": 0.125, "depth": 3}]})
    path = StudyFiles(study).requests / f"{request.id}.request"
    content = path.read_bytes()
    for damaged in (*one_bit_flipped(content, 300), *torn_ends(content, 300)):
        path.write_bytes(damaged)
        pending = RequestInbox(study).pending()
        assert pending == [request] or (pending == [] and path.name in caplog.text)
        caplog.clear()


@pytest.mark.parametrize("content", NO_REQUESTS)
def test_a_file_that_is_no_request_is_ignored(study: Path, content: str) -> None:
    request = write_request(study, "stop", {"trial": 7})
    (StudyFiles(study).requests / "0.request").write_text(content)
    assert RequestInbox(study).pending() == [request]


def link_to_passwords(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link_to_passwords])
def test_what_is_no_file_is_ignored(study: Path, make: Callable[[Path], None]) -> None:
    request = write_request(study, "stop", {"trial": 7})
    make(StudyFiles(study).requests / "0.request")
    assert RequestInbox(study).pending() == [request]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link_to_passwords])
def test_what_is_no_file_is_no_answer(study: Path, make: Callable[[Path], None]) -> None:
    request = write_request(study, "stop", {"trial": 7})
    make(StudyFiles(study).requests / f"{request.id}.answer")
    assert wait_for_answer(study, request, timeout_seconds=0) is None


def test_an_answer_that_nobody_reads_is_removed_in_the_end(study: Path) -> None:
    request = write_request(study, "pause", {})
    answer_request(study, request, RequestAnswer("paused"))
    RequestInbox(study)
    assert files(study) == [f"{request.id}.answer"]
    long_ago = study_requests._STALE_SECONDS + 60
    answer = StudyFiles(study).requests / f"{request.id}.answer"
    os.utime(answer, (answer.stat().st_mtime - long_ago,) * 2)
    RequestInbox(study)
    assert files(study) == []


def test_a_request_is_plain_json_which_other_programs_may_write(study: Path) -> None:
    request = write_request(study, "enqueue", {"params": [{"lr": 0.1}]})
    text = (StudyFiles(study).requests / f"{request.id}.request").read_text()
    fields = json.loads(text)
    assert fields.pop("crc"), "which other programs may leave out"
    assert fields == {
        "kind": "enqueue",
        "arguments": {"params": [{"lr": 0.1}]},
        "user": request.user,
        "time": request.time,
    }
