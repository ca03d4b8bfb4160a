"""Files that are whole or not there, and that colleagues may read."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from automl.record.disk import (
    open_replacing,
    public_file_opener,
    replace_folder,
    write_atomically,
    write_durably,
)
from tests.lossy_disk import LossyDisk


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o644)])
def test_every_way_to_make_a_file_leaves_it_to_the_umask_who_reads_it(
    mask: int, expected: int, tmp_path: Path
) -> None:
    with umask(mask):
        write_atomically(tmp_path / "picture", "text")
        write_durably(tmp_path / "durable", "text")
        with open_replacing(tmp_path / "bytes") as file:
            file.write(b"text")
        with open(tmp_path / "appended", "ab", opener=public_file_opener) as file:
            file.write(b"text")
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("picture", "durable", "bytes", "appended"), expected
    )


def test_what_a_killed_writer_left_gives_neither_text_nor_mode(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    for remains in ("file", "link"):
        path = tmp_path / remains
        beside = path.with_name(f"{remains}.part")
        if remains == "file":
            beside.write_text("half of")
            beside.chmod(0o600)
        else:
            beside.symlink_to(secret)
        with umask(0o022):
            write_atomically(path, "new")
        assert (path.read_text(), mode(path)) == ("new", 0o644)
    assert secret.read_text() == "mine"


def test_a_file_is_replaced_whole_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    for text in ("old", "new"):
        write_atomically(path, text)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_who_write_a_file_at_once_the_one_who_began_last_does(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    first, second = ExitStack(), ExitStack()
    first.enter_context(open_replacing(path)).write(b"whole, too")
    file = second.enter_context(open_replacing(path))
    file.write(b"half of")
    with pytest.raises(FileExistsError, match="another process"):
        first.close()
    assert not path.exists(), "half a file would stand there"
    file.write(b" it, and the rest")
    second.close()
    assert path.read_bytes() == b"half of it, and the rest"
    assert list(tmp_path.iterdir()) == [path]


def test_a_power_cut_leaves_the_old_text_or_the_new_one(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    seen: list[str] = []

    def look() -> None:
        for cut in lossy_disk.both_power_cuts():
            path = cut / "config.yaml"
            seen.append(path.read_text() if path.exists() else "a: 0")

    lossy_disk.on_step = look
    for text in ("a: 1", "a: 2"):
        write_durably(tmp_path / "config.yaml", text)
        assert seen[-2:] == [text, text], "it is on disk when the function returns"
    assert seen == sorted(seen)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_a_picture_costs_no_flush(tmp_path: Path, lossy_disk: LossyDisk) -> None:
    write_atomically(tmp_path / "status.json", "{}")
    assert lossy_disk.flushed.empty()


def write_folder(path: Path, text: str) -> None:
    with replace_folder(path) as folder:
        (folder / "a").write_text(text)
        (folder / "b").write_text(text)


def texts_in(path: Path) -> list[str]:
    return [file.read_text() for file in sorted(path.iterdir())]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_whole_and_nothing_is_left_beside(
    tmp_path: Path, lossy_disk: LossyDisk, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:  # a C library that does not know how
        monkeypatch.setattr(ctypes, "CDLL", lambda *args, **more: object())
    path = tmp_path / "out"
    seen, left = list[list[str]](), list[list[str]]()

    def look() -> None:
        if path.exists():
            seen.append(texts_in(path))
        for cut in lossy_disk.both_power_cuts():
            if (cut / "out").exists():
                left.append(texts_in(cut / "out"))  # each is gone with the next

    lossy_disk.on_step = look
    for text in ("old", "new"):
        write_folder(path, text)
        assert seen[-1] == [text] * 2
        on_disk = texts_in(lossy_disk.after_power_cut() / "out")
        assert on_disk == [text] * 2, "it is there when it returns"
    assert seen == sorted(seen, reverse=True), "the old one, then the new one, and never a part"
    assert {*map(tuple, seen), *map(tuple, left)} == {("old",) * 2, ("new",) * 2}
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_folder_is_there_until_the_new_one_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_folder(path, "old")
    kept = os.open(path, os.O_RDONLY)
    write_folder(path, "new")
    with pytest.raises(UnicodeEncodeError):
        write_folder(path, "\ud800")
    assert texts_in(path) == ["new"] * 2
    assert list(tmp_path.iterdir()) == [path]
    assert os.listdir(kept) == []
    os.close(kept)


def test_what_a_killed_writer_of_a_folder_left_is_no_part_of_the_new_one(tmp_path: Path) -> None:
    beside = tmp_path / f".out.{os.getpid()}.part"
    beside.mkdir()
    (beside / "c").write_text("of another")
    with umask(0o002):
        write_folder(tmp_path / "out", "new")
    assert texts_in(tmp_path / "out") == ["new"] * 2
    assert {mode(file) for file in (tmp_path / "out").iterdir()} == {0o644}
