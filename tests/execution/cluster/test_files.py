"""Files of trials that come from a node, or go to one."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.execution.cluster import messages as m
from automl.execution.cluster.executor import _Execution
from automl.execution.cluster.files import OwnFolder, kept_of, put
from automl.execution.executor import TrialFeed
from automl.record.fence import Fence
from automl.trial import Checkpointed, CheckpointKind, Finished, TrialSpec


@pytest.mark.parametrize("name", ["../else", "/etc/motd", "checkpoints/../../else"])
def test_a_file_stays_below_the_study(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="names are below the study's folder"):
        put(tmp_path, {name: b""})


def test_a_file_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    put(tmp_path, {"checkpoints/trial-00000/last.pt": b"old"})
    put(tmp_path, {"checkpoints/trial-00000/last.pt": b"new"})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["last.pt"]
    assert (tmp_path / "checkpoints/trial-00000/last.pt").read_bytes() == b"new"


def test_a_full_disk_is_the_sweeps_trouble(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot be written"):
        put(tmp_path, {"checkpoints/trial-00000/last.pt": b"new"})


def test_what_came_for_a_trial_goes_back_only_where_it_changed(tmp_path: Path) -> None:
    study, here = tmp_path / "study", tmp_path / "node"
    spec = TrialSpec(3, {}, str(study / "checkpoints" / "3"), 0)
    other = replace(spec, number=4, checkpoint_dir=str(study / "checkpoints" / "4"))
    put(study, {"checkpoints/3/last.pt": b"one", "checkpoints/3/artifacts/plot": b"a plot"})
    put(study, {"checkpoints/4/last.pt": b"another's"})
    folder = OwnFolder(str(study), here)
    there = folder.arrived(spec, kept_of(study, [spec, other]))
    last = Path(there.checkpoint_dir) / "last.pt"
    assert last.read_bytes() == b"one"
    assert not (here / "checkpoints" / "4").exists()
    last.write_bytes(b"grown")
    event, files = folder.told(Checkpointed(3, time.time(), 1, str(last), CheckpointKind.LAST))
    assert isinstance(event, Checkpointed)
    assert event.path == str(study / "checkpoints" / "3" / "last.pt")
    assert files == {"checkpoints/3/last.pt": b"grown"}
    (last.parent / "best.json").write_bytes(b"{}")
    assert folder.told(Finished(3, time.time(), 0.0))[1] == {"checkpoints/3/best.json": b"{}"}


def test_what_comes_of_a_trial_that_is_another_sweeps_by_now_changes_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints" / "trial-00003"
    spec = TrialSpec(3, {}, str(folder), 0, attempt=1)
    carried = _Execution(TrialFeed([spec], lambda spec: None), lambda events: {}, tmp_path)
    carried.take(m.Took(3, 3))
    name = "checkpoints/trial-00003/last.pt"
    carried.take(m.Noted(3, [], {name: b"of now"}))
    Fence(folder, 2).close()
    carried.take(m.Noted(3, [], {name: b"later"}))
    assert (folder / "last.pt").read_bytes() == b"of now"
