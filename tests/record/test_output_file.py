"""Files that a user names are replaced whole, and nothing else is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from automl.errors import ConfigError, StorageError
from automl.record.output_file import find_output, open_output


def write(path: object, content: bytes = b"new") -> None:
    with open_output("to", str(path)) as file:
        file.write(content)


def test_a_file_is_replaced_whole_and_a_new_name_is_made(tmp_path: Path) -> None:
    for old in (None, "old"):
        path = tmp_path / f"{old}.csv"
        if old is not None:
            path.write_text(old)
        with open_output("to", path) as file:
            file.write(b"new")
            assert path.exists() == (old is not None)
            assert old is None or path.read_text() == old
        assert path.read_text() == "new"
    assert len(os.listdir(tmp_path)) == 2


def test_a_link_is_followed_wherever_it_leads(tmp_path: Path) -> None:
    target = tmp_path / "other" / "scores.csv"
    target.parent.mkdir()
    link, second = tmp_path / "link.csv", tmp_path / "second.csv"
    link.symlink_to(target)
    second.symlink_to("link.csv")
    for content in (b"first", b"again"):
        write(second, content)
        assert target.read_bytes() == content
    assert link.is_symlink()
    assert second.is_symlink()
    assert os.listdir(target.parent) == ["scores.csv"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (stat.S_IFIFO, "a pipe"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFDIR, "a folder"),
        (stat.S_IFLNK, "a link"),
    ],
)
@pytest.mark.parametrize("by_link", [False, True])
def test_whatever_is_no_file_stays_and_is_refused_by_its_kind(
    tmp_path: Path, kind: int, text: str, by_link: bool
) -> None:
    path = tmp_path / "thing.csv"
    if kind == stat.S_IFDIR:
        path.mkdir()
    elif kind == stat.S_IFLNK:
        path.symlink_to(path.name)
    else:
        try:
            os.mknod(path, kind | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices are made by root alone")
    before = os.lstat(path)
    typed = tmp_path / "link.csv" if by_link else path
    if by_link:
        typed.symlink_to(path)
    with pytest.raises(ConfigError, match=f"^to={typed}: this is {text}, which no file"):
        write(typed)
    assert os.path.samestat(os.lstat(path), before)


@pytest.mark.parametrize(
    "typed", ["/", ".", "..", "", "~", "gone/x.csv", "new/", "\0", "a\0b", "/dev/null", "/dev/../"]
)
def test_an_odd_name_is_refused_by_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        write(typed)
    assert str(refused.value).startswith(f"to={typed}: ")
    assert os.listdir(tmp_path) == []


def test_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_output("to", "~/a.csv") == tmp_path / "a.csv"


def test_an_error_of_the_disk_names_what_was_typed(tmp_path: Path) -> None:
    path = tmp_path / f"{'long' * 62}.csv"
    rule = rf"^to={path}: cannot be written \(File name too long\)"
    with pytest.raises(StorageError, match=rule) as raised:
        write(path)
    assert ".part" not in str(raised.value)


def test_an_error_of_another_file_is_not_the_outputs(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="gone"),
        open_output("path", tmp_path / "a") as file,
    ):
        file.write((tmp_path / "gone").read_bytes())
    assert os.listdir(tmp_path) == []
