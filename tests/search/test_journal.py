"""The journal file: torn tails, failed writes, foreign writers, and that Optuna itself reads it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.search.storage import LockedJournal
from tests.flips import one_bit_flipped, unsealed
from tests.lossy_disk import LossyDisk
from tests.search.conftest import Studies, ask, finish, report, run, value_of

FULL = Path("/dev/full")


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in numbers)


def read(journal: LockedJournal) -> list[int]:
    return [log["n"] for log in journal.read_logs(0)]


def test_lines_come_back_once_each(tmp_path: Path) -> None:
    journal = LockedJournal(tmp_path / "journal.log")
    journal.append_logs([{"n": 1}, {"n": 2}])
    assert [log["n"] for log in journal.read_logs(0)] == [1, 2]
    journal.append_logs([{"n": 3, "text": "x" * 200_000}])
    assert [log["n"] for log in journal.read_logs(2)] == [3]
    assert list(journal.read_logs(3)) == []
    journal.close()


def test_a_study_goes_on_from_any_cut_of_its_last_lines(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    run(study, 3)
    report(study, ask(study).number, 0, 1.0)
    study.close()
    whole = (tmp_path / "journal.log").read_bytes()
    last_lines = sum(map(len, whole.splitlines(keepends=True)[-4:]))
    for n_bytes in [*range(len(whole) - last_lines, len(whole), 37), len(whole) - 1]:
        folder = tmp_path / str(n_bytes)
        folder.mkdir()
        (folder / "journal.log").write_bytes(whole[:n_bytes])
        cut = studies.open(directory=folder)
        for trial in cut.interrupted():
            finish(cut, trial.number)
        run(cut, 5)
        cut.close()
        again = studies.open(directory=folder)
        assert [trial.number for trial in again.interrupted()] == []
        assert again.n_asked == 5


def test_damage_within_the_file_is_named_and_nothing_is_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    for damage in (b'{"n":1{"n":1}\n', b"1,2\n", b"\0\0\0\n"):
        content = lines(1) + damage + lines(3)
        path.write_bytes(content)
        journal = LockedJournal(path)
        with pytest.raises(StorageError, match=r"journal.log: line 2 is damaged .*restore"):
            read(journal)
        journal.close()
        assert path.read_bytes() == content


def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    journal = LockedJournal(tmp_path / "journal.log")
    with pytest.raises(StudyInUseError, match="another process writes this study"):
        LockedJournal(tmp_path / "journal.log")
    journal.close()
    LockedJournal(tmp_path / "journal.log").close()


def test_a_lock_that_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "journal.log.lock"
    lock.symlink_to(tmp_path / "journal.log")
    LockedJournal(tmp_path / "journal.log").close()
    assert not lock.is_symlink()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_failed_write_refuses_everything_after(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    path.symlink_to(FULL)
    journal = LockedJournal(path)
    with pytest.raises(StorageError, match=r"cannot be written \(No space left on device"):
        journal.append_logs([{"n": 1}])
    for call in (journal.sync, lambda: journal.append_logs([]), lambda: read(journal)):
        with pytest.raises(StorageError, match="No space left on device"):
            call()
    journal.close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from automl.errors import StorageError
from tests.search.conftest import Studies, ask, finish, report, run

folder = Path(sys.argv[1])
study = Studies(folder).open()
run(study, 3)
asked = ask(study)
size_bytes = (folder / "journal.log").stat().st_size
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 20, limits[1]))

def refused(call):
    try:
        call()
    except StorageError as error:
        assert "File too large" in str(error), error
        return True
    return False

assert refused(study.ask)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # room again: file and memory differ already
assert refused(study.ask)
assert refused(lambda: report(study, asked.number, 0, 1.0))
assert refused(lambda: finish(study, asked.number))
assert (folder / "journal.log").stat().st_size == size_bytes
print(study.n_asked)
"""


def test_a_full_disk_stops_a_study_and_leaves_it_whole(studies: Studies, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "4\n", "")
    study = studies.open()
    assert [trial.number for trial in study.interrupted()] == [3]
    assert study.n_asked == 4


def test_optunas_own_backend_reads_the_file(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    trials = run(study, 4)
    report(study, ask(study).number, 3, 0.5)
    stock = optuna.load_study(
        study_name="toy",
        storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal.log"))),
    )
    assert [t.state.name for t in stock.trials] == ["COMPLETE"] * 4 + ["RUNNING"]
    assert [t.value for t in stock.trials] == [*map(value_of, trials), None]
    assert stock.trials[4].intermediate_values == {3: 0.5}
    searched = {k: v for k, v in trials[2].params.items() if k != "dropout"}
    assert stock.trials[2].params == searched
    best = study.best()
    assert best is not None
    assert (stock.best_trial.number, stock.best_value) == (best.number, best.value)
    for line in (tmp_path / "journal.log").read_text("utf-8").splitlines():
        json.loads(line, parse_constant=pytest.fail)  # a browser reads no NaN


def test_what_another_program_notes_in_the_file_is_kept(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    run(study, 2)
    stock = optuna.load_study(
        study_name="toy",
        storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal.log"))),
    )
    stock.set_user_attr("note", "from the dashboard")
    run(study, 4)
    study = studies.reopen(study)
    assert study.n_asked == 4
    notes = [json.loads(line) for line in (tmp_path / "journal.log").read_text().splitlines()]
    assert any(line.get("user_attr") == {"note": "from the dashboard"} for line in notes)


def test_asks_and_ends_are_flushed_and_reports_need_not_be(
    studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = studies.open()
    flushed: queue.SimpleQueue[int] = queue.SimpleQueue()
    to_disk = os.fdatasync

    def counted(fd: int) -> None:
        to_disk(fd)
        flushed.put(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    number = ask(study).number
    journal = flushed.get(timeout=300)
    report(study, number, 0, 1.0)
    finish(study, number)
    assert flushed.get(timeout=300) == journal
    assert flushed.empty(), "one flush for the report and the end"


def test_an_ask_is_one_line(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    n_before = len((tmp_path / "journal.log").read_bytes().splitlines())
    ask(study)
    assert len((tmp_path / "journal.log").read_bytes().splitlines()) == n_before + 1


# --- what a power cut leaves, and a disk that fails -----------------------------------------------


def flushing_thread() -> threading.Thread:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "journal.log")
    return thread


def test_a_line_is_on_disk_soon_after_it_is_asked_for(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    path = tmp_path / "journal.log"
    journal = LockedJournal(path)
    journal.append_logs([{"n": 1}])
    journal.sync()
    while lossy_disk.flushed.get(timeout=300) != path:
        pass
    assert lossy_disk.content(path) == path.read_bytes() != b""
    journal.close()


def test_a_flush_that_failed_refuses_everything_after(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    journal = LockedJournal(tmp_path / "journal.log")
    journal.append_logs([{"n": 1}])
    lossy_disk.fail_next_flush(OSError(errno.EIO, "Input/output error"))
    journal.sync()
    flushing_thread().join(timeout=300)  # it ends with the first failure
    for call in (journal.sync, lambda: journal.append_logs([{"n": 2}]), lambda: read(journal)):
        with pytest.raises(StorageError, match=r"journal\.log cannot be written \(Input/output"):
            call()
    journal.close()


@pytest.mark.parametrize("asked", [True, False])
def test_a_last_flush_that_failed_is_told_by_close(
    asked: bool, tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    journal = LockedJournal(tmp_path / "journal.log")
    journal.append_logs([{"n": 1}])
    lossy_disk.fail_next_flush(OSError(errno.EIO, "Input/output error"))
    if asked:
        journal.sync()
    with pytest.raises(StorageError, match=r"journal\.log cannot be written \(Input/output"):
        journal.close()
    journal.close()


# --- flipped bits ---------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_and_its_line_named(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    run(study, 5)
    ranking = study.ranking(5)
    study.close()
    path = tmp_path / "journal.log"
    n_lines = len(path.read_bytes().splitlines())
    for content in one_bit_flipped(path.read_bytes(), 300):
        path.write_bytes(content)
        try:
            study = studies.open()
        except StorageError as error:
            message = str(error)
        else:  # no value was hit, or it was the end of the last line, which is cut off
            told = study.ranking(5)
            assert told in (ranking, tuple(t for t in ranking if t.number != 4))
            study.close()
            continue
        named = re.search(r"journal\.log: line (\d+) is damaged \(.*\); restore", message)
        assert named, message
        assert 1 <= int(named[1]) <= n_lines


def test_a_flipped_bit_of_a_journal_without_checksums_is_one_message(
    studies: Studies, tmp_path: Path
) -> None:
    study = studies.open()
    run(study, 5)
    study.close()
    path = tmp_path / "journal.log"
    for content in one_bit_flipped(unsealed(path.read_bytes()), 300):
        path.write_bytes(content)
        with contextlib.suppress(StorageError, ConfigError):
            Studies(tmp_path).open().close()
