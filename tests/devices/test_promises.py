"""What sweeps show each other of their promises: two of them, and what strangers leave there."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.devices import memory_promises as module
from automl.devices.memory_promises import (
    DEFAULT_FOLDER,
    LOCK_SECONDS,
    MAX_BYTES,
    MemoryPromise,
    PromiseFolder,
    decode,
    encode,
    folder_of,
)
from automl.trial import LOCAL_HOST
from tests.places import device_id

GPU = device_id("GPU-a")
NOW = 1000.0
ONE = MemoryPromise("GPU-a", "t1", 5)
DEAD = """
import os, sys
from automl.devices.memory_promises import MemoryPromise, PromiseFolder
PromiseFolder(sys.argv[1]).show([MemoryPromise("GPU-a", "t1", 5)])
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "promises"


@pytest.fixture
def mine(folder: Path) -> Iterator[PromiseFolder]:
    promises = PromiseFolder(str(folder))
    yield promises
    promises.close()


@pytest.fixture
def theirs(folder: Path) -> Iterator[PromiseFolder]:
    promises = PromiseFolder(str(folder))
    yield promises
    promises.close()


def sizes(promises: PromiseFolder) -> list[int]:
    assert all(device == GPU for device, _ in promises.others(NOW))
    return sorted(promises.others(NOW).values())


def a_name(number: int = 0) -> str:
    return f"0-1-{number:016x}"


def leave(folder: Path, content: bytes, number: int = 0) -> int:
    """A living stranger's file; the descriptor that holds it."""
    (folder / a_name(number)).write_bytes(content)
    file = os.open(folder / a_name(number), os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def test_each_sees_what_the_other_shows_now_and_not_its_own(
    mine: PromiseFolder, theirs: PromiseFolder, folder: Path
) -> None:
    mine.show([ONE, MemoryPromise("GPU-a", "t2", 7)])
    assert (sizes(theirs), sizes(mine)) == ([5, 7], [])
    mine.show([MemoryPromise("GPU-a", "t2", 3)])
    assert sizes(theirs) == [3]
    mine.show([])
    assert sizes(theirs) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o644]
    mine.close()
    assert list(folder.iterdir()) == []


def test_a_promise_keeps_its_word_while_others_come_and_go(
    mine: PromiseFolder, theirs: PromiseFolder
) -> None:
    mine.show([ONE])
    (before,) = theirs.others(NOW)
    mine.show([ONE, MemoryPromise("GPU-a", "t2", 7)])
    assert theirs.others(NOW)[before] == 5


def test_what_a_dead_sweep_left_counts_no_more_and_is_removed(
    mine: PromiseFolder, folder: Path
) -> None:
    subprocess.run([sys.executable, "-c", DEAD, str(folder)], check=True)
    assert len(list(folder.iterdir())) == 1
    assert sizes(mine) == []
    assert list(folder.iterdir()) == []


def test_what_was_swept_away_is_shown_again(
    mine: PromiseFolder, theirs: PromiseFolder, folder: Path
) -> None:
    mine.show([ONE])
    for path in folder.iterdir():
        path.unlink()
    mine.show([ONE])
    assert sizes(theirs) == [5]


def test_one_that_is_replaced_while_it_is_read_is_read_anew(
    mine: PromiseFolder, theirs: PromiseFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old file is not locked any more when it is looked at, as a dead sweep's."""
    mine.show([ONE])
    is_held = module._is_held

    def replaced_before(file: int) -> bool:
        monkeypatch.setattr(module, "_is_held", is_held)
        mine.show([MemoryPromise("GPU-a", "t1", 6)])
        return module._is_held(file)

    monkeypatch.setattr(module, "_is_held", replaced_before)
    assert sizes(theirs) == [6]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"promises 1\nGPU-a t1 5\n",
        b"promises 2\nGPU-a t1 5\nend\n",
        b"promises 1\nGPU-a t1 -5\nend\n",
        b"promises 1\nGPU-a t1 5 5\nend\n",
        b"promises 1\nGPU-a t1 5\nhost t1 5\nend\n",
        b"promises 1\nGPU-a t1 " + b"9" * 16 + b"\nend\n",
        b"promises 1\n" + b"GPU-a t1 5\n" * (MAX_BYTES // 11) + b"end\n",
        b"promises 1\nGPU-\xff t1 5\nend\n",
        b"promises 1\n\x00end\n",
    ],
)
def test_what_is_torn_or_odd_counts_for_nothing(
    mine: PromiseFolder, folder: Path, content: bytes
) -> None:
    file = leave(folder, content)
    good = leave(folder, encode([ONE]), 1)
    assert sizes(mine) == [5]
    os.close(file)
    os.close(good)


def test_links_pipes_and_folders_are_passed_over_without_waiting(
    mine: PromiseFolder, folder: Path, tmp_path: Path
) -> None:
    held = leave(tmp_path, encode([ONE]))
    (folder / a_name(1)).symlink_to(tmp_path / a_name())
    os.mkfifo(folder / a_name(2))
    (folder / a_name(3)).mkdir()
    (folder / "notes.txt").write_bytes(encode([ONE]))
    assert sizes(mine) == []
    os.close(held)


def test_no_more_than_so_many_files_are_looked_at(
    mine: PromiseFolder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    files = [leave(folder, encode([ONE]), n) for n in range(5)]
    assert len(mine.others(NOW)) == 3
    for file in files:
        os.close(file)


def test_a_folder_that_cannot_be_is_said_once_and_the_sweep_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    promises = PromiseFolder(str(tmp_path / "link"))
    promises.show([ONE])
    promises.show([])
    assert promises.others(NOW) == {}
    promises.close()
    assert [m.split(":")[0] for m in caplog.messages] == [
        "sweeps at once on this machine may overlook each other"
    ]


def test_a_file_that_cannot_be_written_is_said_once_and_others_are_still_seen(
    mine: PromiseFolder,
    theirs: PromiseFolder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    theirs.show([ONE])
    monkeypatch.setattr(module, "_replace", full)
    mine.show([ONE])
    mine.show([])
    assert len(caplog.messages) == 1
    assert "No space left on device" in caplog.text
    assert sizes(mine) == [5]


def test_what_cannot_be_replaced_is_withdrawn_and_leaves_no_file(
    mine: PromiseFolder, theirs: PromiseFolder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was promised before would keep others waiting for as long as the sweep lives."""
    mine.show([ONE])
    assert sizes(theirs) == [5]
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: 0)
        mine.show([])
    assert sizes(theirs) == []
    assert [*folder.iterdir()] == []


def test_a_strangers_folder_without_the_sticky_bit_is_no_place_to_meet(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(mode=0o777)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    if folder.stat().st_uid != 0:
        assert PromiseFolder(str(folder)).others(NOW) == {}
        assert "sticky bit" in caplog.text
    folder.chmod(0o1777)
    caplog.clear()
    PromiseFolder(str(folder)).close()
    assert caplog.text == ""


def test_sweeps_that_choose_at_once_never_promise_more_than_there_is(folder: Path) -> None:
    """Each has room for two of its own; all together there is room for three."""
    sweeps = [PromiseFolder(str(folder)) for _ in range(4)]

    def choose(sweep: PromiseFolder) -> None:
        shown: list[MemoryPromise] = []
        for n in range(2):
            with sweep.locked():
                if sum(sweep.others(NOW).values()) + 5 * len(shown) + 5 <= 15:
                    shown.append(MemoryPromise("GPU-a", f"t{n}", 5))
                    sweep.show(shown)

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(choose, sweeps)]
    looker = PromiseFolder(str(folder))
    assert sizes(looker) == [5, 5, 5]
    for sweep in (*sweeps, looker):
        sweep.close()


def test_one_that_hangs_while_it_decides_is_waited_for_once(
    mine: PromiseFolder,
    theirs: PromiseFolder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    own, sleep = threading.get_ident(), time.sleep

    def pause(seconds: float) -> None:
        """Note a pause of this thread; threads of libraries have theirs."""
        waited.append(seconds) if threading.get_ident() == own else sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    mine._lock_seconds = 0.02
    with theirs.locked():
        with mine.locked():
            assert waited
        waited.clear()
        with mine.locked():
            assert not waited
    assert len(caplog.messages) == 1
    assert "may overlook each other" in caplog.text
    with mine.locked():
        assert mine._lock_seconds == LOCK_SECONDS, "it is free again, and would be waited for"


def test_one_that_is_killed_while_it_decides_keeps_nobody_out(
    mine: PromiseFolder, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = DEAD.replace("os._exit(0)", "")
    hangs += "import time\nwith PromiseFolder(sys.argv[1]).locked():\n    os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", hangs, str(folder)], check=False)
    with mine.locked():
        assert sizes(mine) == []
    assert caplog.messages == []


def test_which_folder() -> None:
    assert folder_of([GPU], {}) == DEFAULT_FOLDER
    assert folder_of([GPU], {"AUTOML_PROMISES": "/elsewhere"}) == "/elsewhere"
    assert folder_of([GPU], {"AUTOML_PROMISES": ""}) is None
    assert folder_of([LOCAL_HOST], {}) is None


uuids = st.from_regex(r"GPU-[0-9a-f-]{1,40}", fullmatch=True)
entries = st.builds(
    MemoryPromise, uuids, st.from_regex(r"t[0-9]{1,9}", fullmatch=True), st.integers(0, 10**15 - 1)
)


@given(st.lists(entries, max_size=9))
def test_what_is_written_is_read(shown: list[MemoryPromise]) -> None:
    assert decode(encode(shown)) == tuple(shown)


@given(st.lists(entries, max_size=3), st.integers(0, 200))
def test_half_a_file_counts_for_nothing(shown: list[MemoryPromise], length: int) -> None:
    whole = encode(shown)
    assert decode(whole[: min(length, len(whole) - 1)]) == ()
