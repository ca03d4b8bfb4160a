"""Requests to the sweeps of a study: seen whole, from its owner, and gone once answered."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record import study_requests
from automl.record.sharing.shared_record import SharedRecord
from automl.record.sharing.shared_requests import SharedRequestQueue, SweepRequestQueue
from automl.record.study_directory import StudyDirectory
from automl.record.study_files import StudyFiles
from automl.record.study_requests import (
    MAX_REQUEST_BYTES,
    FolderRequestQueue,
    RequestAnswer,
    RequestQueue,
    StudyRequest,
)
from tests.flips import one_bit_flipped, torn_ends
from tests.postgres import database, postgres

__all__ = ["database", "postgres"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "calm-crane"
    path.mkdir()
    (path / "config.yaml").touch()
    return path


def files(study: Path) -> list[str]:
    return sorted(path.name for path in StudyFiles(study).requests.iterdir())


# --- the contract: requests in a folder, and in a database ----------------------------------------


class FolderPlace:
    """A study that is kept in its folder."""

    def __init__(self, study: Path) -> None:
        self._config = StudyConfig(name=study.name, dir=str(study.parent))
        self.command: RequestQueue = FolderRequestQueue(study)

    @contextmanager
    def sweep(self) -> Iterator[RequestQueue]:
        """The queue as a sweep sees it, while one is at work."""
        with StudyDirectory.open(self._config, must_exist=True) as directory:
            yield FolderRequestQueue(directory.path, directory.locked_time)

    def look(self, queue: RequestQueue) -> list[StudyRequest]:
        return queue.pending()

    def settle(self, queue: RequestQueue) -> None:
        """What is answered reaches the command."""

    def n_left(self) -> int:
        return len([*self.command._folder.iterdir()])  # type: ignore[attr-defined]

    def close(self) -> None:
        self.command.close()


class DatabasePlace:
    """A study in PostgreSQL, which sweeps of several machines share."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self._database, self._n_sweeps = folder, database, 0
        with self.sweep():
            pass
        self.command: RequestQueue = SharedRequestQueue.open(self._config(folder))

    def _config(self, folder: Path) -> StudyConfig:
        return StudyConfig(name="a", dir=str(folder), storage=self._database, n_trials=9)

    @contextmanager
    def sweep(self) -> Iterator[RequestQueue]:
        """The queue as a sweep sees it, while one is at work in a folder of its own."""
        self._n_sweeps += 1
        (folder := self._folder / f"machine-{self._n_sweeps}").mkdir()
        with closing(SharedRecord.open(self._config(folder), folder)) as shared:
            if shared.stored_study is None:
                shared.register("uuid", {}, "config")
            shared.begin()
            with shared._main_database.transaction() as cursor:
                shared.requests.begin(cursor)
            yield shared.requests

    def look(self, queue: RequestQueue) -> list[StudyRequest]:
        assert isinstance(queue, SweepRequestQueue)
        with queue._database.transaction() as cursor:
            queue.look(cursor)
        return queue.pending()

    def settle(self, queue: RequestQueue) -> None:
        assert isinstance(queue, SweepRequestQueue)
        queue.write_answers()

    def n_left(self) -> int:
        with psycopg.connect(self._database) as connection:
            return len(connection.execute("SELECT FROM automl_requests").fetchall())

    def close(self) -> None:
        self.command.close()


Place = FolderPlace | DatabasePlace


@pytest.fixture(params=["folder", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        made: Place = FolderPlace(request.getfixturevalue("study"))
    else:
        made = DatabasePlace(tmp_path, request.getfixturevalue("database"))
    with closing(made):
        yield made


def test_a_request_pends_until_it_is_answered_and_its_answer_is_read_once(place: Place) -> None:
    with place.sweep() as sweep:
        request = place.command.write("stop", {"trial": 7})
        assert place.look(sweep) == place.look(sweep) == [request]
        assert (request.kind, request.arguments) == ("stop", {"trial": 7})
        assert place.command.wait_for_answer(request, timeout_seconds=0) is None
        sweep.answer(request, RequestAnswer("trial 7 has ended", done=False))
        assert place.look(sweep) == []
        place.settle(sweep)
        answer = place.command.wait_for_answer(request, timeout_seconds=60)
        assert answer == RequestAnswer("trial 7 has ended", done=False)
    assert place.n_left() == 0


def test_what_was_answered_is_not_done_again_by_a_later_sweep(place: Place) -> None:
    request = place.command.write("enqueue", {"points": []})
    with place.sweep() as sweep:
        assert place.look(sweep) == [request]
        sweep.answer(request, RequestAnswer("trial 3"))
        place.settle(sweep)
    with place.sweep() as sweep:
        assert place.look(sweep) == []
    assert place.command.wait_for_answer(request, timeout_seconds=60) == RequestAnswer("trial 3")
    assert place.n_left() == 0


def test_what_no_sweep_has_answered_before_a_kill_is_done_by_the_next(place: Place) -> None:
    request = place.command.write("enqueue", {"points": []})
    for _ in range(2):
        with place.sweep() as sweep:
            assert place.look(sweep) == [request]


def test_a_command_waits_for_the_answer_of_a_sweep_at_work(place: Place) -> None:
    with place.sweep() as sweep:
        request = place.command.write("pause", {})
        found: list[RequestAnswer | None] = []
        waiting = threading.Thread(
            target=lambda: found.append(place.command.wait_for_answer(request, timeout_seconds=60))
        )
        waiting.start()
        sweep.answer(place.look(sweep)[0], RequestAnswer("paused"))
        place.settle(sweep)
        waiting.join(60)
    assert found == [RequestAnswer("paused")]


def test_no_answer_is_waited_for_where_no_sweep_is_at_work(place: Place) -> None:
    request = place.command.write("pause", {})
    assert not place.command.is_served()
    assert place.command.wait_for_answer(request, timeout_seconds=3600) is None
    with place.sweep() as sweep:
        assert place.command.is_served()
        assert place.look(sweep) == [request]
        assert request.time < sweep.since, "it is not for this sweep"


def test_requests_come_in_the_order_in_which_they_were_made(place: Place) -> None:
    made = [place.command.write("stop", {"trial": n}) for n in range(20)]
    with place.sweep() as sweep:
        assert [r.arguments["trial"] for r in place.look(sweep)] == [*range(20)]
    assert len({request.id for request in made}) == 20


# --- of several sweeps ----------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, database: str) -> Iterator[DatabasePlace]:
    with closing(DatabasePlace(tmp_path, database)) as place:
        yield place


def test_a_pause_is_answered_by_each_sweep_at_work_and_by_no_later_one(
    shared: DatabasePlace,
) -> None:
    with shared.sweep() as first, shared.sweep() as second:
        request = shared.command.write("pause", {})
        with shared.sweep() as later:
            for sweep, text in ((first, "1 trial goes on"), (later, "no"), (second, "2 go on")):
                assert shared.look(sweep) == [request]
                assert shared.command.take_answer(request) is None
                sweep.answer(request, RequestAnswer(text))
                shared.settle(sweep)
                if sweep is first:
                    late = shared.command.take_answer(request, is_late=True)
                    assert late is not None
                    assert "has not answered yet" in late.text
            answer = shared.command.take_answer(request)
    assert answer is not None
    assert [line.partition(": ")[2] for line in answer.text.splitlines()[:2]] == [
        "1 trial goes on",
        "2 go on",
    ]
    assert shared.n_left() == 0


def test_of_two_answers_that_are_for_all_the_first_counts(shared: DatabasePlace) -> None:
    request = shared.command.write("stop", {"trial": 3})
    with shared.sweep() as first, shared.sweep() as second:
        for sweep, text in ((first, "it is pruned"), (second, "it has ended")):
            assert shared.look(sweep) == [request]
            sweep.answer(request, RequestAnswer(text))
        for sweep in (first, second):
            shared.settle(sweep)
    assert shared.command.take_answer(request) == RequestAnswer("it is pruned")


def test_a_sweep_that_was_killed_is_not_waited_for(shared: DatabasePlace, database: str) -> None:
    """Its process is gone by what this machine knows, though its lease has not ended."""
    with shared.sweep() as sweep:
        request = shared.command.write("pause", {})
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO automl_sweeps (sweep, study, holder, since, lease_until) "
                "SELECT 'killed', study, replace(holder, '\"pid\": ', '\"pid\": 99'), since, "
                "lease_until FROM automl_sweeps WHERE lease_until > now()"
            )
        assert shared.look(sweep) == [request]
        sweep.answer(request, RequestAnswer("paused"))
        shared.settle(sweep)
        assert shared.command.take_answer(request) == RequestAnswer("paused")


def test_a_request_of_another_role_is_ignored_and_said_once(
    shared: DatabasePlace, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = shared.command.write("stop", {"trial": 7})
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE automl_requests SET role = 'mallory'")
    with shared.sweep() as sweep:
        assert shared.look(sweep) == shared.look(sweep) == []
    (warning,) = [record.message for record in caplog.records]
    assert f"request {request.id} of mallory" in warning
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE automl_studies SET owner = 'ann'")
    with pytest.raises(ConfigError, match=r"ann began it.*you are postgres there"):
        shared.command.write("stop", {"trial": 7})


# --- files ----------------------------------------------------------------------------------------


def test_a_request_whose_answer_was_written_before_a_kill_is_not_done_again(study: Path) -> None:
    queue = FolderRequestQueue(study)
    request = queue.write("stop", {"trial": 7, "as": "interrupted"})
    asked = StudyFiles(study).requests / f"{request.id}.request"
    text = asked.read_text()
    queue.answer(request, RequestAnswer("trial 7 stops"))
    asked.write_text(text)  # the kill came before it was removed
    assert queue.pending() == []
    assert queue.wait_for_answer(request, timeout_seconds=60) == RequestAnswer("trial 7 stops")
    assert files(study) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_request_of_another_user_is_ignored_and_said_once(
    study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = FolderRequestQueue(study).write("stop", {"trial": 7})
    path = StudyFiles(study).requests / f"{request.id}.request"
    os.chown(path, 12345, 12345)
    inbox = FolderRequestQueue(study)
    assert inbox.pending() == inbox.pending() == []
    assert [record.message for record in caplog.records] == [
        f"{path} is ignored: it is no request to this study (it belongs to user 12345)"
    ]
    os.chown(study / "config.yaml", 12345, 12345)
    with pytest.raises(ConfigError, match=r"belongs to another user.*ask its owner"):
        FolderRequestQueue(study).write("stop", {"trial": 7})


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
    request = FolderRequestQueue(study).write("enqueue", {"points": [{"lr": 0.125, "depth": 3}]})
    path = StudyFiles(study).requests / f"{request.id}.request"
    content = path.read_bytes()
    for damaged in (*one_bit_flipped(content, 300), *torn_ends(content, 300)):
        path.write_bytes(damaged)
        pending = FolderRequestQueue(study).pending()
        assert pending == [request] or (pending == [] and path.name in caplog.text)
        caplog.clear()


@pytest.mark.parametrize("content", NO_REQUESTS)
def test_a_file_that_is_no_request_is_ignored(study: Path, content: str) -> None:
    request = FolderRequestQueue(study).write("stop", {"trial": 7})
    (StudyFiles(study).requests / "0.request").write_text(content)
    assert FolderRequestQueue(study).pending() == [request]


def link_to_passwords(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def link_to_a_request(path: Path) -> None:
    (elsewhere := path.parents[2] / "elsewhere").mkdir()
    (elsewhere / "config.yaml").touch()
    request = FolderRequestQueue(elsewhere).write("stop", {"trial": 8})
    path.symlink_to(StudyFiles(elsewhere).requests / f"{request.id}.request")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link_to_passwords, link_to_a_request])
def test_what_is_no_file_is_ignored(study: Path, make: Callable[[Path], None]) -> None:
    request = FolderRequestQueue(study).write("stop", {"trial": 7})
    make(StudyFiles(study).requests / "0.request")
    assert FolderRequestQueue(study).pending() == [request]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link_to_passwords])
def test_what_is_no_file_is_no_answer(study: Path, make: Callable[[Path], None]) -> None:
    request = FolderRequestQueue(study).write("stop", {"trial": 7})
    make(StudyFiles(study).requests / f"{request.id}.answer")
    assert FolderRequestQueue(study).wait_for_answer(request, timeout_seconds=0) is None


def test_an_answer_that_nobody_reads_is_removed_in_the_end(study: Path) -> None:
    request = FolderRequestQueue(study).write("pause", {})
    FolderRequestQueue(study).answer(request, RequestAnswer("paused"))
    FolderRequestQueue(study)
    assert files(study) == [f"{request.id}.answer"]
    long_ago = study_requests.STALE_SECONDS + 60
    answer = StudyFiles(study).requests / f"{request.id}.answer"
    os.utime(answer, (answer.stat().st_mtime - long_ago,) * 2)
    FolderRequestQueue(study)
    assert files(study) == []


def test_a_request_is_plain_json_which_other_programs_may_write(study: Path) -> None:
    request = FolderRequestQueue(study).write("enqueue", {"params": [{"lr": 0.1}]})
    text = (StudyFiles(study).requests / f"{request.id}.request").read_text()
    fields = json.loads(text)
    assert fields.pop("crc"), "which other programs may leave out"
    assert fields == {
        "kind": "enqueue",
        "arguments": {"params": [{"lr": 0.1}]},
        "user": request.user,
        "time": request.time,
    }
