"""Checkpoint files: whole or absent, readable with weights_only, else refused early."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.errors import StorageError
from automl.in_trial.checkpoints import torch_checkpoint
from tests.flips import one_bit_flipped
from tests.lossy_disk import LossyDisk, no_room_beyond


@dataclass
class Settings:
    """As users keep them."""

    root: Path
    rates: Any


def with_more() -> Settings:
    settings = Settings(Path("/a"), 1)
    settings.found_later = 3  # type: ignore[attr-defined]
    return settings


def test_what_is_saved_is_read_back_with_weights_only(tmp_path: Path) -> None:
    state = {
        "epoch": 3,
        "rate": np.float64(0.5),
        "names": ("a", "b"),
        "nested": [{"t": torch.arange(3)}, None, True],
        "model": torch.nn.Linear(2, 1).state_dict(),
    }
    path = tmp_path / "new" / "folder" / "last.pt"
    torch_checkpoint.save(path.parent, {"last.pt": torch_checkpoint.snapshot(state)})
    loaded = torch_checkpoint.load(path)
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
    torch_checkpoint.save(tmp_path, {path.name: torch_checkpoint.snapshot(state)})
    assert torch_checkpoint.load(path)["plain"] == (*state["plain"][:3], (2, 2), 10**30)


def test_a_snapshot_does_not_change_with_later_training() -> None:
    weight = torch.zeros(2, requires_grad=True)
    state = torch_checkpoint.snapshot({"weights": [weight]})
    with torch.no_grad():
        weight.add_(1)
    assert state["weights"][0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"rng": np.random.default_rng()}, r"\['rng'\] is a numpy.*rng\.bit_generator\.state"),
        ({"old": np.random.RandomState(0)}, r"\['old'\] is a numpy.*get_state\(\)"),
        ({"names": np.array(["a"])}, r"\['names'\] is a numpy.ndarray.*this kind \(<U1\)"),
        ({"big": np.zeros(2, ">f8")}, r"\['big'\] is a numpy.ndarray.*this kind \(>f8\)"),
        ({"precise": np.longdouble(1)}, r"\['precise'\] is a numpy.longdouble"),
        ({"when": np.datetime64("2020-01-01")}, r"\['when'\] is a numpy.datetime64"),
        ({"more": with_more()}, r"\['more'\] is a tests.*Settings.*more than its fields"),
        ({np.datetime64("2020-01-01"): 1}, r"the key .* is a numpy.datetime64"),
        ({"a": [1, {"model": torch.nn.Linear(1, 1)}]}, r"\['a'\]\[1\]\['model'\] is a torch.nn"),
    ],
)
def test_what_could_not_be_read_back_is_refused_by_its_place(
    state: dict[str, object], where: str
) -> None:
    with pytest.raises(TypeError, match=where):
        torch_checkpoint.snapshot(state)


def test_what_plain_values_can_tell_whole_is_stored_as_them(tmp_path: Path) -> None:
    rates = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {
        "settings": Settings(Path("/a/b"), rates[::-1]),
        "half": np.float16(0.1),
        "none": np.empty((0, 3)),
        "frozen": np.frombuffer(b"abc", np.uint8),
        "mixed": [np.zeros(2, np.complex64), {np.int64(3): np.bool_(True)}],
    }
    torch_checkpoint.save(tmp_path, {"last.pt": torch_checkpoint.snapshot(state)})
    loaded = torch_checkpoint.load(tmp_path / "last.pt")
    assert loaded["settings"]["root"] == "/a/b"
    assert np.array_equal(loaded["settings"]["rates"].numpy(), rates[::-1])
    assert loaded["half"] == float(np.float16(0.1))
    assert loaded["none"].shape == (0, 3)
    assert loaded["frozen"].tolist() == list(b"abc")
    assert loaded["mixed"][0].dtype is torch.complex64
    assert loaded["mixed"][1] == {3: True}


def test_an_array_in_a_snapshot_does_not_change_with_later_training() -> None:
    weights = np.zeros(2)
    state = torch_checkpoint.snapshot({"weights": weights})
    weights += 1
    assert state["weights"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_numpys_generators_go_on_from_a_checkpoint(tmp_path: Path, kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(5))
    generator.integers(0, 5, 3, dtype=np.uint32)
    state = {"rng": generator.bit_generator.state, "old": np.random.RandomState(3).get_state()}
    torch_checkpoint.save(tmp_path, {"last.pt": torch_checkpoint.snapshot(state)})
    loaded = torch_checkpoint.load(tmp_path / "last.pt")
    again, old = np.random.Generator(getattr(np.random, kind)(9)), np.random.RandomState(9)
    again.bit_generator.state = loaded["rng"]
    old.set_state(loaded["old"])
    assert again.random(4).tolist() == generator.random(4).tolist()
    assert old.random_sample(4).tolist() == np.random.RandomState(3).random_sample(4).tolist()


KILLED = """
import itertools, os, random, signal, sys, time
from pathlib import Path
import torch
from automl.in_trial.checkpoints import torch_checkpoint as checkpoint
from tests.flips import one_bit_flipped
from tests.lossy_disk import LossyDisk, no_room_beyond

def write_for_ever(epoch):
    for epoch in itertools.count(epoch + 1):
        save({"epoch": epoch, "weights": torch.full((60_000,), float(epoch))})
        os.write(told, b"%d\\n" % epoch)

torch.set_num_threads(1)  # OpenMP's threads do not live through a fork
folder, chance, epoch = Path(sys.argv[1]), random.Random(2026), 0
save = SAVE
n_remains = 0
for _ in range(12):
    heard, told = os.pipe()
    if (writer := os.fork()) == 0:
        write_for_ever(epoch)
    os.close(told)
    first = os.read(heard, 100)  # it writes by now
    time.sleep(chance.uniform(0, 0.01))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    epoch = int((first + os.read(heard, 100_000)).split()[-1])
    os.close(heard)
    content = checkpoint.load(folder / "last.pt")
    assert content["epoch"] in (epoch, epoch + 1), (content["epoch"], epoch)
    assert (content["weights"] == content["epoch"]).all()
    n_remains += (folder / "last.pt.part").exists()
    epoch = content["epoch"]
save({"epoch": -1})
assert checkpoint.load(folder / "last.pt") == {"epoch": -1}
assert [path.name for path in folder.iterdir()] == ["last.pt"]
assert n_remains, "no kill came while a file was written"
"""


@pytest.mark.slow
def test_a_kill_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that writes in a loop is killed 12 times, at any instant."""
    code = KILLED.replace("SAVE", 'lambda content: checkpoint.save(folder, {"last.pt": content})')
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_power_cut_leaves_the_file_of_before_or_the_new_one(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    folder = tmp_path / "study" / "checkpoints" / "trial-00000"
    seen: list[int] = []

    def epoch_in(cut: Path) -> int:
        path = cut / folder.relative_to(tmp_path) / "last.pt"
        return int(torch_checkpoint.load(path)["epoch"]) if path.exists() else 0

    def look() -> None:
        seen.extend(map(epoch_in, lossy_disk.both_power_cuts()))

    lossy_disk.on_step = look
    for epoch in (1, 2):
        torch_checkpoint.save(folder, {"last.pt": {"epoch": epoch}})
        assert seen[-2:] == [epoch, epoch], "it is on disk when save returns"
    for names in (seen[0::2], seen[1::2]):  # the flushed ones, those of then
        assert names == sorted(names), "never an older one again"


def test_a_checkpoint_that_the_disk_does_not_take_leaves_no_remains(
    tmp_path: Path, lossy_disk: LossyDisk
) -> None:
    path = tmp_path / "last.pt"
    torch_checkpoint.save(tmp_path, {"last.pt": {"epoch": 1}})
    lossy_disk.fail_next_flush(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StorageError, match=r"last\.pt: .*No space left on device"):
        torch_checkpoint.save(tmp_path, {"last.pt": {"epoch": 2}})
    assert torch_checkpoint.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("n_weights", [10, 100_000])
def test_a_full_disk_leaves_the_file_of_before_and_no_remains(
    tmp_path: Path, n_weights: int
) -> None:
    path = tmp_path / "last.pt"
    torch_checkpoint.save(tmp_path, {"last.pt": {"epoch": 1}})
    with (
        no_room_beyond(500),
        pytest.raises(StorageError, match=r"last\.pt: .*could not be written: File too large"),
    ):
        torch_checkpoint.save(tmp_path, {"last.pt": {"weights": torch.zeros(n_weights)}})
    assert torch_checkpoint.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_has_room_again_after_a_failed_write_is_a_storage_error(tmp_path: Path) -> None:
    """torch then raises an error of its own, as the end of its archive is not where it should be:
    the trial would fail, which has done nothing wrong."""
    path, limits = tmp_path / "last.pt", resource.getrlimit(resource.RLIMIT_FSIZE)
    torch_checkpoint.save(tmp_path, {"last.pt": {"epoch": 1}})
    before = signal.signal(
        signal.SIGXFSZ, lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    )
    try:
        with (
            no_room_beyond(100_000),
            pytest.raises(StorageError, match=r"last\.pt: .*could not be written: File too large"),
        ):
            torch_checkpoint.save(tmp_path, {"last.pt": {"weights": torch.zeros(100_000)}})
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert torch_checkpoint.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


class RunsCode:
    """What a stranger's file may hold: unpickled, it makes a folder."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.made),)


def test_a_strangers_file_runs_no_code(tmp_path: Path) -> None:
    torch.save({"state": RunsCode(tmp_path / "made")}, tmp_path / "best.pt")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        torch_checkpoint.load(tmp_path / "best.pt")
    assert not (tmp_path / "made").exists()


def test_a_disk_that_takes_no_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"file: the checkpoint could not be written"):
        torch_checkpoint.save(tmp_path / "file", {"last.pt": {"epoch": 1}})


def test_a_file_that_is_no_checkpoint_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        torch_checkpoint.load(path)


def test_a_part_that_a_flipped_bit_marks_as_a_folder_is_seen(tmp_path: Path) -> None:
    """torch reads nothing of it, without a word: its tensor holds what was in the memory."""
    torch_checkpoint.save(tmp_path, {"last.pt": {"weights": torch.arange(40.0)}})
    content = (path := tmp_path / "last.pt").read_bytes()
    heads = [match.start() for match in re.finditer(b"PK\x01\x02", content)]
    assert len(heads) > 3
    for head in heads:
        attributes = head + 38
        path.write_bytes(content[:attributes] + b"\x10" + content[attributes + 1 :])
        with pytest.raises(ValueError, match="marked as a folder"):
            torch_checkpoint.load(path)


def test_one_flipped_bit_is_seen_or_does_no_harm(tmp_path: Path) -> None:
    """Torch itself reads a network with another weight in 8 of 10 cases."""
    path = tmp_path / "last.pt"
    weights = torch.arange(200.0)
    torch_checkpoint.save(tmp_path, {path.name: {"weights": weights, "epoch": 3}})
    refused = []
    for damaged in one_bit_flipped(path.read_bytes(), 500):
        path.write_bytes(damaged)
        try:
            content = torch_checkpoint.load(path)
        except ValueError as error:
            refused.append(str(error))
        else:  # it was padding, or a part of the archive that nobody reads
            assert torch.equal(content["weights"], weights)
            assert content["epoch"] == 3
    assert len(refused) > 100
    assert all(str(path) in text for text in refused)
