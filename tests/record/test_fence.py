"""Only the last attempt may write into a trial's folder."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from automl.errors import StorageError
from automl.execution.cluster.node_files import put_files
from automl.in_trial.checkpoints import plain_checkpoint, torch_checkpoint
from automl.record.lease import FolderTakenOverError, TrialFolderFence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "checkpoints" / "trial-00007").mkdir(parents=True)
    return folder


def is_behind(folder: Path, attempt: int) -> bool:
    try:
        TrialFolderFence(folder, attempt).check()
    except FolderTakenOverError:
        return True
    return False


def test_a_later_attempt_keeps_earlier_ones_out(folder: Path) -> None:
    TrialFolderFence(folder, 1).close()
    assert not is_behind(folder, 1)
    TrialFolderFence(folder, 3).close()  # who had the second has died before it began
    assert [is_behind(folder, attempt) for attempt in (0, 1, 2, 3, 4)] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_who_is_late_to_begin_does_not_open_it_again(folder: Path) -> None:
    TrialFolderFence(folder, 3).close()
    TrialFolderFence(folder, 2).close()
    assert is_behind(folder, 2)
    assert not is_behind(folder, 3)


def test_a_folder_that_cannot_be_marked_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("no folder")
    with pytest.raises(StorageError, match="cannot be written"):
        TrialFolderFence(tmp_path / "checkpoints" / "trial-00007", 2).close()


@pytest.mark.parametrize("files", [torch_checkpoint, plain_checkpoint])
@pytest.mark.parametrize("when", ["before it begins", "while it writes"])
def test_a_checkpoint_of_an_earlier_attempt_changes_nothing(
    folder: Path, files: ModuleType, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = TrialFolderFence(folder, 2)
    files.save(folder, {"last.pt": {"step": 9}}, later)
    beside = folder / "last.pt.part"
    if when == "before it begins":
        later.close()
        beside.write_text("what the other is writing")
    else:
        fsync = os.fsync

        def closing(fd: int) -> None:
            monkeypatch.undo()
            later.close()
            fsync(fd)

        monkeypatch.setattr(os, "fsync", closing)
    with pytest.raises(FolderTakenOverError):
        files.save(folder, {"last.pt": {"step": 3}}, TrialFolderFence(folder, 1))
    assert files.load(folder / "last.pt") == {"step": 9}
    assert beside.exists() == (when == "before it begins")


def test_nor_do_the_files_that_a_node_sends(tmp_path: Path, folder: Path) -> None:
    (other := folder.with_name("trial-00008")).mkdir()
    fences = [TrialFolderFence(folder, 1), TrialFolderFence(other, 1)]
    sent = {f"checkpoints/{name}/last.pt": b"of now" for name in (folder.name, other.name)}
    put_files(tmp_path, sent, fences)
    TrialFolderFence(folder, 2).close()
    put_files(tmp_path, dict.fromkeys([*sent, "logs/trial-00007.log"], b"later"), fences)
    assert (folder / "last.pt").read_bytes() == b"of now"
    assert (other / "last.pt").read_bytes() == b"later"
    assert (tmp_path / "logs" / "trial-00007.log").read_bytes() == b"later"
