"""Studies as one file: what `archive` takes, `restore` gives back."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.commands.archiving import archive, read_back, restore
from automl.commands.command_call import CommandCall
from automl.config import Config, StudyConfig
from automl.config.command_arguments import ArchiveArguments, RestoreArguments
from automl.errors import ConfigError, StorageError
from automl.record.study_directory import (
    StudyDirectory,
    StudyPlace,
    read_study_place,
    settle_place,
)
from automl.record.study_requests import FolderRequestQueue
from tests.tracking.scenes import NAME, UUID, sweep_ended, sweep_started, trial, write


def make_study(folder: Path) -> Path:
    """A study of two trials, with a checkpoint."""
    study = StudyConfig(name=NAME, dir=str(folder / "studies"))
    with StudyDirectory.open(study, must_exist=False) as directory:
        directory.files.config.write_text("study: {}\n")
        directory.files.journal.touch()
        settle_place(directory.path, study, UUID, NAME)
        started = replace(sweep_started(), study=NAME, study_uuid=UUID)
        write(directory.path, started, *trial(0), *trial(1), sweep_ended(2))
        checkpoints(directory.path).mkdir(parents=True)
        (checkpoints(directory.path) / "step1.ckpt").write_bytes(bytes(range(256)) * 100)
    return directory.path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return make_study(tmp_path)


def checkpoints(study: Path) -> Path:
    return study / "checkpoints" / "trial-00000"


def archiving(study: Path, output: str | None) -> CommandCall:
    of_study = StudyConfig(name=study.name, dir=str(study.parent))
    return CommandCall(Config(study=of_study), arguments=ArchiveArguments(to=output))


def place_of(study: Path) -> StudyPlace:
    place = read_study_place(study)
    assert place is not None
    return place


def restored(file: Path, **settings: Any) -> CommandCall:
    of_study = replace(StudyConfig(dir=str(file.parent / "studies")), **settings)
    return CommandCall(Config(study=of_study), arguments=RestoreArguments(file=str(file)))


def archived(study: Path) -> Path:
    """Return the file of the archived study."""
    file = study.parents[1] / "a.tar.gz"
    assert archive(archiving(study, str(file))) == 0
    return file


def content(study: Path) -> dict[str, bytes]:
    files = (path for path in study.rglob("*") if path.is_file())
    names = {str(path.relative_to(study)): path.read_bytes() for path in files}
    return {name: text for name, text in names.items() if name not in ("lock", "place.json")}


def test_a_restored_study_is_the_archived_one(study: Path) -> None:
    before = content(study)
    FolderRequestQueue(study).write("stop", {"trial": 1, "as": "pruned"})
    file = archived(study)
    shutil.rmtree(study)
    restore(restored(file))
    assert content(study) == before, "what was asked of the original is left out"
    assert place_of(study).study_uuid == UUID, "it goes on with its runs"


def test_beside_its_original_a_restored_study_is_a_copy(study: Path) -> None:
    file = archived(study)
    with pytest.raises(ConfigError, match=rf"study\.name={NAME}: .* exists"):
        restore(restored(file))
    restore(restored(file, name="twin"))
    assert content(study.with_name("twin")) == content(study)
    assert place_of(study.with_name("twin")).study_uuid != UUID
    restore(restored(file, name="moved", copy=False))
    moved = place_of(study.with_name("moved"))
    assert (moved.study_uuid, moved.former_names) == (UUID, (NAME,))


def tar_of(file: Path, members: Collection[tarfile.TarInfo]) -> Path:
    with tarfile.open(file, "w:gz") as tar:
        for member in members:
            tar.addfile(member)
    return file


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("a/config.yaml"), member("b/config.yaml")],
        [member("a/notes.txt")],
        [member("../a/config.yaml")],
        [member("/tmp/a/config.yaml")],
        [member("a/config.yaml"), member("a/../../out")],
        [member("a/config.yaml"), member("a/checkpoints", tarfile.SYMTYPE, "/etc")],
        [member("a/config.yaml"), member("a/pipe", tarfile.FIFOTYPE)],
        [member("a/config.yaml"), member("a/up", tarfile.SYMTYPE, "../b")],
        [member("a/config.yaml"), member("a/d", tarfile.SYMTYPE, "."), member("a/d/x")],
        [member("a/config.yaml"), member("a/config.yaml")],
        [member("a/config.yaml"), member("a/l", tarfile.LNKTYPE, "/etc/passwd")],
        [
            member("a/config.yaml"),
            member("a/later", tarfile.SYMTYPE, "d/e/../../b"),
            member("a/d", tarfile.SYMTYPE, "."),
            member("a/e", tarfile.SYMTYPE, "."),
        ],
        [],
    ],
)
def test_a_file_that_is_no_archive_of_a_study_is_refused(
    tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    file = tar_of(tmp_path / "strange.tar.gz", members)
    with pytest.raises(ConfigError, match="no whole study"):
        restore(restored(file))
    assert list((tmp_path / "studies").rglob("*")) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("n_bytes", [0, 10, 400])
def test_an_archive_that_was_cut_off_is_refused(study: Path, n_bytes: int) -> None:
    file = archived(study)
    os.truncate(file, n_bytes)
    with pytest.raises(ConfigError, match="no whole study"):
        restore(restored(file, name="twin"))
    assert [path.name for path in study.parent.iterdir()] == [NAME]


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere\.tar\.gz cannot be read"):
        restore(restored(tmp_path / "nowhere.tar.gz"))


def test_two_names_of_a_file_are_two_files(study: Path) -> None:
    """A kill while `last.pt` is written leaves it and the one before as one file."""
    os.link(checkpoints(study) / "step1.ckpt", checkpoints(study) / "last.ckpt")
    restore(restored(archived(study), name="twin"))
    assert content(study.with_name("twin")) == content(study)
    twins = {file.stat().st_ino for file in checkpoints(study.with_name("twin")).iterdir()}
    assert len(twins) == 2


def test_archives_of_earlier_versions_have_hard_links(tmp_path: Path) -> None:
    settings = member(f"{NAME}/config.yaml")
    second = member(f"{NAME}/last.pt", tarfile.LNKTYPE, settings.name)
    restore(restored(tar_of(tmp_path / "a.tar.gz", [settings, second])))
    assert (tmp_path / "studies" / NAME / "last.pt").is_file()


def test_links_lead_to_the_same_places_of_the_restored_study(study: Path) -> None:
    folder = checkpoints(study)
    (folder / "last.ckpt").symlink_to("step1.ckpt")
    (folder / "best.ckpt").symlink_to(folder / "step1.ckpt")
    (folder / "all").symlink_to(Path("..", "..", "checkpoints"))
    restore(restored(archived(study), name="twin"))
    twin = checkpoints(study.with_name("twin"))
    shutil.rmtree(study)
    for name in ("last.ckpt", "best.ckpt"):
        assert (twin / name).resolve() == (twin / "step1.ckpt").resolve()
    assert (twin / "all").resolve() == twin.parent.resolve()


def test_what_no_archive_holds_is_refused_by_name_before_anything_is_written(study: Path) -> None:
    folder = checkpoints(study)
    os.mkfifo(folder / "pipe")
    (folder / "data").symlink_to("/etc")
    os.mknod(folder / "ipc", stat.S_IFSOCK)
    with pytest.raises(ConfigError) as refused:
        archived(study)
    for text in ("pipe is a pipe", "ipc is a socket", "data is a link to /etc, outside"):
        assert f"checkpoints/trial-00000/{text}" in str(refused.value)
    assert os.listdir(study.parents[1]) == ["studies"]


@pytest.mark.parametrize("damaged", ["config.yaml", "place.json"])
def test_a_study_that_restore_would_refuse_is_not_archived(study: Path, damaged: str) -> None:
    (study / damaged).unlink()
    (study / damaged).mkdir()
    with pytest.raises((ConfigError, StorageError), match=damaged):
        archived(study)
    assert os.listdir(study.parents[1]) == ["studies"]


@pytest.mark.parametrize("at", [200, -8, -1])
def test_an_archive_with_a_wrong_byte_is_refused(study: Path, at: int) -> None:
    file = archived(study)
    changed = bytearray(file.read_bytes())
    changed[at] ^= 1
    file.write_bytes(changed)
    with pytest.raises(ConfigError, match="no whole study"):
        restore(restored(file, name="twin"))
    assert [path.name for path in study.parent.iterdir()] == [NAME]


def test_an_archive_that_the_disk_did_not_keep_is_not_said_to_be_there(study: Path) -> None:
    file = archived(study)
    with tarfile.open(file) as tar:
        n_entries = len(tar.getmembers())
    read_back(file, n_entries)
    with pytest.raises(OSError, match=f"{n_entries} of {n_entries + 1} entries"):
        read_back(file, n_entries + 1)
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(OSError, match="cannot be read back"):
        read_back(file, n_entries)


NAMES = st.text(st.sampled_from("ab. \n\udcff\u202e"), min_size=1, max_size=3).filter(
    lambda name: name.strip(".") != ""
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/".join(names))
TARGETS = st.lists(st.sampled_from(["..", "a", "b", "ab"]), min_size=1, max_size=4).map("/".join)
ENTRIES = st.one_of(
    st.binary(max_size=50).map(lambda content: ("file", content)),
    TARGETS.map(lambda target: ("link", target)),
    TARGETS.map(lambda target: ("absolute", target)),
    st.sampled_from([("hard", ""), ("folder", ""), ("pipe", "")]),
)


def add_entry(study: Path, name: str, kind: str, content: Any) -> None:
    path = study / name
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "file":
            path.write_bytes(content)
        case "link":
            path.symlink_to(content)
        case "absolute":
            path.symlink_to(study / content)
        case "hard":
            os.link(study / "events.log", path)
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()


def tree(study: Path) -> dict[str, object]:
    """What stands at each name: a folder, a file's content, or where a link leads."""
    found = dict[str, object]()
    for folder, folders, files in os.walk(study):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink():
                led = os.path.realpath(path)
                content: object = "link", os.path.relpath(led, os.path.realpath(study))
            else:
                content = path.read_bytes() if path.is_file() else "folder"
            found[str(path.relative_to(study))] = content
    return {name: found[name] for name in found if name not in ("lock", "place.json")}


@given(st.dictionaries(PATHS, ENTRIES, max_size=6))
def test_a_study_that_archive_takes_is_restored_equal(
    tmp_path_factory: pytest.TempPathFactory, entries: Mapping[str, tuple[str, Any]]
) -> None:
    study = make_study(tmp_path_factory.mktemp("archive"))
    for name, (kind, content) in entries.items():
        with suppress(OSError):  # a name within a file, or a circle of links
            add_entry(study, name, kind, content)
    try:
        file = archived(study)
    except ConfigError:
        assert {"pipe", "link", "absolute"} & {kind for kind, _ in entries.values()}
        assert os.listdir(study.parents[1]) == ["studies"]
    else:
        restore(restored(file, name="twin"))
        assert tree(study.with_name("twin")) == tree(study)
