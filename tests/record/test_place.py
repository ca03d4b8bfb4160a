"""Where a study stands: what is the same folder, what was renamed, what has to be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.record.study_directory import (
    StudyDirectory,
    StudyPlace,
    decide_place,
    read_study_place,
    settle_place,
    settle_place_unlocked,
)
from automl.record.study_files import PLACE
from tests.flips import one_bit_flipped

KEPT = StudyPlace("5b7c-uuid", "/data/studies/a", device=1, inode=100)


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize(
    ("path", "device", "inode", "former_names"),
    [
        ("/data/studies/a", 1, 100, ()),
        ("/other/a", 1, 100, ()),  # moved on its disk
        ("/data/studies/b", 1, 100, ("a",)),  # renamed
        ("/data/studies/a", 7, 100, ()),  # its disk was mounted again, or on another machine
    ],
)
def test_a_folder_with_its_inode_is_the_study(
    path: str, device: int, inode: int, former_names: tuple[str, ...], copy: bool | None
) -> None:
    here = StudyPlace("x", path, device, inode)
    expected = replace(here, study_uuid=KEPT.study_uuid, former_names=former_names)
    assert decide_place(KEPT, here, copy) == expected, "whatever study.copy says"


@pytest.mark.parametrize(
    ("path", "device", "inode"),
    [("/data/studies/a", 1, 101), ("/data/studies/b", 1, 101), ("/other/a", 7, 100)],
)
def test_another_folder_is_asked_whether_it_was_moved_or_copied(
    path: str, device: int, inode: int
) -> None:
    here = StudyPlace("x", path, device, inode)
    with pytest.raises(ConfigError, match=r"copy=false .* copy=true") as caught:
        decide_place(KEPT, here, None)
    assert path in str(caught.value)
    assert KEPT.path in str(caught.value)
    moved, copied = decide_place(KEPT, here, False), decide_place(KEPT, here, True)
    assert moved.study_uuid == KEPT.study_uuid
    assert moved.former_names == (() if here.name == "a" else ("a",))
    assert copied.study_uuid != KEPT.study_uuid
    assert copied.study_uuid != decide_place(KEPT, here, True).study_uuid
    assert copied.former_names == ()
    for place in (moved, copied):
        assert (place.path, place.device, place.inode) == (path, device, inode)


def test_former_names_are_kept_once_each_and_never_the_present_one() -> None:
    place = KEPT
    for name in ("b", "c", "b", "a"):
        place = decide_place(place, replace(place, path=f"/data/studies/{name}"), None)
    assert (place.name, place.former_names) == ("a", ("c", "b"))


def folder(tmp_path: Path, name: str = "a") -> Path:
    path = tmp_path / name
    path.mkdir()
    (path / "journal.log").touch()
    return path


def test_a_study_without_a_place_is_taken_where_it_stands_under_its_own_name(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path)
    place = settle_place(path, StudyConfig(name="a"), "5b7c", "a")
    assert place == read_study_place(path)
    assert (place.study_uuid, place.inode) == ("5b7c", path.stat().st_ino)
    assert settle_place(path, StudyConfig(name="a"), "of-the-journal", "a").study_uuid == "5b7c"


def test_a_study_without_a_place_under_another_name_is_asked(tmp_path: Path) -> None:
    path = folder(tmp_path, "b")
    with pytest.raises(ConfigError, match="moved or copied"):
        settle_place(path, StudyConfig(name="b"), "5b7c", "a")
    assert read_study_place(path) is None, "refused before anything is written"
    assert settle_place(path, StudyConfig(name="b", copy=False), "5b7c", "a").former_names == ("a",)


def test_a_study_in_a_database_can_be_moved_and_not_copied(tmp_path: Path) -> None:
    first, second = folder(tmp_path), folder(tmp_path, "second")
    storage = "sqlite:///shared.db"
    settle_place(first, StudyConfig(name="a", storage=storage), "5b7c", "a")
    (second / PLACE).write_bytes((first / PLACE).read_bytes())
    for config in (StudyConfig(name="a", storage=storage, copy=True), StudyConfig(copy=True)):
        with pytest.raises(ConfigError, match=r"in a database .* copy=false"):
            settle_place(second, config, "5b7c", "a")
        (second / "journal.log").unlink(missing_ok=True)  # `sync` does not know the setting
    moved = StudyConfig(name="a", storage=storage, copy=False)
    assert settle_place(second, moved, "5b7c", "a").study_uuid == "5b7c"


def test_only_who_holds_the_study_gives_it_a_new_place(tmp_path: Path) -> None:
    path = folder(tmp_path)
    kept = replace(KEPT, path=str(path))
    (path / PLACE).write_text(json.dumps(vars(kept)))
    study = StudyConfig(name="a", dir=str(tmp_path), copy=True)
    with StudyDirectory.open(study, must_exist=True), pytest.raises(StudyInUseError):
        settle_place_unlocked(path, study)
    assert read_study_place(path) == kept
    place = settle_place_unlocked(path, study)
    assert place is not None
    assert place.study_uuid != kept.study_uuid
    with StudyDirectory.open(study, must_exist=True):
        assert settle_place_unlocked(path, study) == place, "nothing is new"


def test_a_flipped_bit_in_a_place_is_found(tmp_path: Path) -> None:
    """Most would give the study another uuid or an earlier name, hence other runs in MLflow."""
    path = folder(tmp_path)
    settle_place(path, StudyConfig(name="a"), "5b7c", "a")
    for flipped in one_bit_flipped((path / PLACE).read_bytes().rstrip(), 300):
        (path / PLACE).write_bytes(flipped)
        with pytest.raises(StorageError, match=PLACE):
            read_study_place(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"study_uuid": "x"}',
        json.dumps(vars(KEPT) | {"study_uuid": "x' or tags.y = 'z"}),
        json.dumps(vars(KEPT) | {"inode": "1"}),
        json.dumps(vars(KEPT) | {"former_names": ["../x"]}),
        json.dumps(vars(KEPT) | {"path": "/data/studies/a$"}),
        json.dumps(vars(KEPT) | {"former_names": 3}),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = folder(tmp_path)
    (path / PLACE).write_text(text)
    with pytest.raises(StorageError, match=r"place\.json cannot be read .* restore it"):
        settle_place(path, StudyConfig(name="a"), "5b7c", "a")
