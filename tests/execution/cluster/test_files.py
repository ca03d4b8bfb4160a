"""Files of trials that come from a node, or go to one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.node_files import OwnNodeFolder, put_files, stored_files_of
from automl.execution.cluster.nodes_executor import _NodeExecution
from automl.execution.executor import TrialFeed
from automl.record.lease import TrialFolderFence
from automl.trial import CheckpointKind, CheckpointWritten, FinishedOutcome, TrialSpec


@pytest.mark.parametrize("name", ["../else", "/etc/motd", "checkpoints/../../else"])
def test_a_file_stays_below_the_study(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="names are below the study's folder"):
        put_files(tmp_path, {name: b""})


def test_a_file_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    put_files(tmp_path, {"checkpoints/trial-00000/last.pt": b"old"})
    put_files(tmp_path, {"checkpoints/trial-00000/last.pt": b"new"})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["last.pt"]
    assert (tmp_path / "checkpoints/trial-00000/last.pt").read_bytes() == b"new"


def test_a_full_disk_is_the_sweeps_trouble(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot be written"):
        put_files(tmp_path, {"checkpoints/trial-00000/last.pt": b"new"})


def test_what_came_for_a_trial_goes_back_only_where_it_changed(tmp_path: Path) -> None:
    study, here = tmp_path / "study", tmp_path / "node"
    spec = TrialSpec(3, {}, str(study / "checkpoints" / "3"), 0)
    other = replace(spec, number=4, checkpoint_dir=str(study / "checkpoints" / "4"))
    put_files(study, {"checkpoints/3/last.pt": b"one", "checkpoints/3/artifacts/plot": b"a plot"})
    put_files(study, {"checkpoints/4/last.pt": b"another's"})
    folder = OwnNodeFolder(str(study), here)
    there = folder.receive_trial(spec, stored_files_of(study, [spec, other]))
    last = Path(there.checkpoint_dir) / "last.pt"
    assert last.read_bytes() == b"one"
    assert not (here / "checkpoints" / "4").exists()
    last.write_bytes(b"grown")
    event, files = folder.prepare_event(
        CheckpointWritten(3, time.time(), 1, str(last), CheckpointKind.LAST)
    )
    assert isinstance(event, CheckpointWritten)
    assert event.path == str(study / "checkpoints" / "3" / "last.pt")
    assert files == {"checkpoints/3/last.pt": b"grown"}
    (last.parent / "best.json").write_bytes(b"{}")
    assert folder.prepare_event(FinishedOutcome(3, time.time(), 0.0))[1] == {
        "checkpoints/3/best.json": b"{}"
    }


def test_what_comes_of_a_trial_that_is_another_sweeps_by_now_changes_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints" / "trial-00003"
    spec = TrialSpec(3, {}, str(folder), 0, attempt=1)
    carried = _NodeExecution(TrialFeed([spec], lambda spec: None), lambda events: {}, tmp_path)
    carried.take(m.TrialTaken(3, 3))
    name = "checkpoints/trial-00003/last.pt"
    carried.take(m.EventsNoted(3, [], {name: b"of now"}))
    TrialFolderFence(folder, 2).close()
    carried.take(m.EventsNoted(3, [], {name: b"later"}))
    assert (folder / "last.pt").read_bytes() == b"of now"
