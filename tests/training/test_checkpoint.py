"""Checkpoint files: whole or absent, readable with weights_only, else refused early."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.errors import StorageError
from automl.training import checkpoint


def test_what_is_saved_is_read_back_with_weights_only(tmp_path: Path) -> None:
    state = {
        "epoch": 3,
        "rate": np.float64(0.5),
        "names": ("a", "b"),
        "nested": [{"t": torch.arange(3)}, None, True],
        "model": torch.nn.Linear(2, 1).state_dict(),
    }
    path = tmp_path / "new" / "folder" / "last.pt"
    checkpoint.save(path, checkpoint.snapshot(state))
    loaded = checkpoint.load(path)
    assert loaded["epoch"] == 3
    assert loaded["rate"] == 0.5
    assert loaded["names"] == ("a", "b")
    assert torch.equal(loaded["nested"][0]["t"], torch.arange(3))
    assert isinstance(loaded["model"], OrderedDict)
    assert [entry.name for entry in path.parent.iterdir()] == ["last.pt"]


def test_every_kind_of_tensor_and_plain_value_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    ones = torch.ones(2, 2)
    state: dict[str, Any] = {
        "tensors": [ones.to(dtype) for dtype in (torch.float8_e4m3fn, torch.bfloat16, torch.bool)],
        "wide": [ones.to(torch.complex64), ones.to(torch.uint16), ones.to_sparse()],
        "parameter": torch.nn.Parameter(ones),
        "plain": (b"bytes", torch.float16, torch.device("cpu"), ones.shape, 10**30),
        "counted": Counter("aab"),
    }
    checkpoint.save(path, checkpoint.snapshot(state))
    assert checkpoint.load(path)["plain"] == (*state["plain"][:3], (2, 2), 10**30)


def test_a_snapshot_does_not_change_with_later_training() -> None:
    weight = torch.zeros(2, requires_grad=True)
    state = checkpoint.snapshot({"weights": [weight]})
    with torch.no_grad():
        weight.add_(1)
    assert state["weights"][0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"rng": np.zeros(2)}, r"checkpoint\['rng'\] is a numpy.ndarray"),
        ({"a": [1, {"model": torch.nn.Linear(1, 1)}]}, r"\['a'\]\[1\]\['model'\] is a torch.nn"),
    ],
)
def test_what_could_not_be_read_back_is_refused_by_its_place(
    state: dict[str, object], where: str
) -> None:
    with pytest.raises(TypeError, match=where):
        checkpoint.snapshot(state)


def test_a_kill_while_writing_leaves_the_file_of_before(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"epoch": 1})
    (tmp_path / "last.pt.part").write_bytes(b"torn")  # what a killed process leaves
    assert checkpoint.load(path) == {"epoch": 1}
    checkpoint.save(path, {"epoch": 2})
    assert checkpoint.load(path) == {"epoch": 2}


def test_a_disk_that_takes_no_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"last\.pt: the checkpoint could not be written"):
        checkpoint.save(tmp_path / "file" / "last.pt", {"epoch": 1})


def test_a_file_that_is_no_checkpoint_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        checkpoint.load(path)
