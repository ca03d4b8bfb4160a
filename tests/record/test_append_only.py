"""The append-only file: whole lines, whatever ends its process; a failure is told, and stays."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from automl.errors import StorageError, StudyInUseError
from automl.record.append_only import AppendOnlyFile
from tests.lossy_disk import LossyDisk, no_room_beyond

FULL = Path("/dev/full")
EIO = OSError(errno.EIO, "Input/output error")
BROKEN = r"lines\.log cannot be written \(Input/output error\): make room.*resume the study"
WHOLE = b"one\ntwo\nthree\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.log"


@pytest.fixture
def file(path: Path) -> Iterator[AppendOnlyFile]:
    file = AppendOnlyFile.open(path)
    yield file
    file.close()


def flusher() -> threading.Thread:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "lines.log")
    return thread


def wait_for_flush(disk: LossyDisk, path: Path) -> None:
    while disk.flushed.get(timeout=300) != path:
        pass


# --- opening --------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_at_every_point_and_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for n_bytes in range(len(WHOLE) + 1):
        path = tmp_path / f"{n_bytes}.log"
        path.write_bytes(WHOLE[:n_bytes])
        lines, newline, torn = WHOLE[:n_bytes].rpartition(b"\n")
        caplog.clear()
        with caplog.at_level(logging.WARNING), closing(AppendOnlyFile.open(path)) as file:
            file.append(b"four\n")
        assert path.read_bytes() == lines + newline + b"four\n"
        aside = Path(f"{path}.torn")
        assert (aside.read_bytes() if aside.exists() else b"") == (torn + b"\n" if torn else b"")
        assert bool(torn) == (f"a torn line of {len(torn)} bytes; kept in {aside}" in caplog.text)


def test_a_torn_tail_longer_than_a_read_is_cut_too(path: Path) -> None:
    path.write_bytes(b"one\n" + b"x" * 200_000)
    AppendOnlyFile.open(path).close()
    assert path.read_bytes() == b"one\n"
    assert Path(f"{path}.torn").stat().st_size == 200_001


def test_what_is_cut_is_on_disk_aside_before_it_is_cut(path: Path, lossy_disk: LossyDisk) -> None:
    path.write_bytes(b"one\ntw")
    AppendOnlyFile.open(path).close()
    assert lossy_disk.content(path) == b"one\n"
    assert lossy_disk.content(Path(f"{path}.torn")) == b"tw\n"


def test_a_file_in_use_is_refused(path: Path, file: AppendOnlyFile) -> None:
    with pytest.raises(StudyInUseError, match=r"lines\.log: another process writes this study"):
        AppendOnlyFile.open(path)
    file.append(b"one\n")
    file.close()
    AppendOnlyFile.open(path).close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere/lines\.log cannot be opened \(No such file"):
        AppendOnlyFile.open(tmp_path / "nowhere" / "lines.log")


def test_a_file_that_cannot_be_mended_is_closed_again(path: Path) -> None:
    path.write_bytes(b"one\ntw")
    Path(f"{path}.torn").mkdir()
    with pytest.raises(StorageError, match=r"lines\.log cannot be opened \(Is a directory"):
        AppendOnlyFile.open(path)
    assert path.read_bytes() == b"one\ntw", "nothing is cut that is not kept"
    Path(f"{path}.torn").rmdir()
    AppendOnlyFile.open(path).close()


# --- writing --------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back(file: AppendOnlyFile) -> None:
    assert file.append(b"one\n") < file.append(b"two\nthree\n")
    assert file.read(100, 0) == WHOLE
    assert file.read(3, 4) == b"two"
    assert file.read(100, len(WHOLE)) == b""


def test_what_was_appended_survives_kill_9(path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from automl.record.append_only import AppendOnlyFile\n"
        "AppendOnlyFile.open(pathlib.Path(sys.argv[1])).append(b'one\\n')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert (ended.returncode, path.read_bytes()) == (-9, b"one\n")


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_write_that_failed_refuses_everything_after(path: Path) -> None:
    path.symlink_to(FULL)
    file = AppendOnlyFile.open(path)
    calls: list[Callable[[], object]] = [
        lambda: file.append(b"one\n"),
        lambda: file.append(b""),
        file.check,
        lambda: file.read(1, 0),
    ]
    for call in calls:
        with pytest.raises(StorageError, match=r"cannot be written \(No space left on device"):
            call()
    file.close()
    with pytest.raises(StorageError, match="No space left on device"):
        file.check()


def test_a_write_that_failed_leaves_no_half_of_a_line(path: Path, file: AppendOnlyFile) -> None:
    file.append(b"one\n")
    with no_room_beyond(6), pytest.raises(StorageError, match="File too large"):
        file.append(b"two\nthree\n")
    assert path.read_bytes() == b"one\n"


def test_what_another_program_wrote_is_not_cut_with_a_failed_write(
    path: Path, file: AppendOnlyFile
) -> None:
    file.append(b"one\n")
    with path.open("ab") as other:
        other.write(b"foreign\n")
    with no_room_beyond(14), pytest.raises(StorageError, match="File too large"):
        file.append(b"three\n")
    assert path.read_bytes() == b"one\nforeign\n"


def test_a_failure_that_was_found_elsewhere_stays(file: AppendOnlyFile) -> None:
    assert str(file.fail("line 2 is damaged")) == "line 2 is damaged"
    with pytest.raises(StorageError, match="line 2 is damaged"):
        file.append(b"one\n")


# --- flushing -------------------------------------------------------------------------------------


def test_a_flush_returns_when_the_line_is_on_disk(
    path: Path, file: AppendOnlyFile, lossy_disk: LossyDisk
) -> None:
    first, second = file.append(b"one\n"), file.append(b"two\n")
    file.flush(first)
    assert lossy_disk.content(path) == b"one\ntwo\n"
    n_flushes = lossy_disk.flushed.qsize()
    file.flush(second)
    assert lossy_disk.flushed.qsize() == n_flushes, "one flush was for both"


def test_lines_are_on_disk_soon_after_it_is_asked_for(
    path: Path, file: AppendOnlyFile, lossy_disk: LossyDisk
) -> None:
    for _ in range(3):
        file.append(b"one\n")
        file.flush_soon()
        wait_for_flush(lossy_disk, path)
        assert lossy_disk.content(path) == path.read_bytes()


def test_a_new_file_keeps_its_name_after_a_power_cut(path: Path, lossy_disk: LossyDisk) -> None:
    with closing(AppendOnlyFile.open(path)) as file:
        file.flush(file.append(b"one\n"))
        assert (lossy_disk.after_power_cut() / path.name).exists()


def test_a_closed_file_is_on_disk(path: Path, lossy_disk: LossyDisk) -> None:
    with closing(AppendOnlyFile.open(path)) as file:
        file.append(b"one\n")
        file.flush_soon()
        wait_for_flush(lossy_disk, path)
        file.append(b"two\n")  # the flusher has just been at work, and rests
    assert lossy_disk.content(path) == b"one\ntwo\n"


def test_a_flush_that_failed_is_told_and_refuses_everything_after(
    file: AppendOnlyFile, lossy_disk: LossyDisk
) -> None:
    appended = file.append(b"one\n")
    lossy_disk.fail_next_flush(EIO)
    calls: list[Callable[[], object]] = [
        lambda: file.flush(appended),
        lambda: file.flush(appended),
        lambda: file.append(b"two\n"),
        lambda: file.read(1, 0),
    ]
    for call in calls:
        with pytest.raises(StorageError, match=BROKEN):
            call()


def test_a_flush_that_failed_in_the_background_is_told_by_the_next_call(
    file: AppendOnlyFile, lossy_disk: LossyDisk
) -> None:
    file.append(b"one\n")
    lossy_disk.fail_next_flush(EIO)
    file.flush_soon()
    flusher().join(timeout=300)  # it ends with the first failure
    with pytest.raises(StorageError, match=BROKEN):
        file.append(b"two\n")


@pytest.mark.parametrize("asked", [True, False])
def test_a_last_flush_that_failed_is_told_by_close_and_once(
    asked: bool, path: Path, lossy_disk: LossyDisk
) -> None:
    file = AppendOnlyFile.open(path)
    file.append(b"one\n")
    lossy_disk.fail_next_flush(EIO)
    if asked:
        file.flush_soon()
    with pytest.raises(StorageError, match=BROKEN):
        file.close()
    file.close()


# --- closing --------------------------------------------------------------------------------------


def test_a_closed_file_takes_nothing(path: Path) -> None:
    file = AppendOnlyFile.open(path)
    file.close()
    file.close()
    with pytest.raises(StorageError, match=r"lines\.log is closed"):
        file.append(b"one\n")
    assert path.read_bytes() == b""


def test_two_threads_close_it_once(path: Path, lossy_disk: LossyDisk) -> None:
    """The second waits for the first, and closes no other file that got the number meanwhile."""
    file = AppendOnlyFile.open(path)
    file.append(b"one\n")
    second, closed = threading.Thread(target=file.close), []
    close_fd = os.close

    def close(fd: int) -> None:
        closed.append(fd)
        if len(closed) == 1:
            second.start()
            second.join(0.2)  # where it waits for us, as it should, it has not ended after that
        close_fd(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "close", close)
        file.close()
        second.join()
    assert len(closed) == 1
    assert lossy_disk.content(path) == b"one\n"


def test_a_file_closed_meanwhile_writes_into_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the call that writes a line and the kernel it is closed, and another file opened."""
    file, other = AppendOnlyFile.open(path), path.with_name("other")
    closer = threading.Thread(target=file.close)
    write, files = os.write, []

    def write_late(fd: int, line: bytes) -> int:
        closer.start()
        closer.join(0.2)  # where it waits for us, as it should, it has not ended after that
        files.append(other.open("ab"))
        return write(fd, line)

    monkeypatch.setattr(os, "write", write_late)
    file.append(b"one\n")
    monkeypatch.undo()
    closer.join()
    files[0].close()
    assert other.read_bytes() == b""
    assert path.read_bytes() == b"one\n"
