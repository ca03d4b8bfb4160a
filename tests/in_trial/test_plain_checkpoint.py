"""Checkpoint files without torch: whole or absent, what was written or refused, never a bomb."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automl.errors import StorageError
from automl.in_trial.checkpoints import plain_checkpoint, torch_checkpoint
from tests.lossy_disk import no_room_beyond

STATE: dict[str, Any] = {
    "epoch": 3,
    "loss": float("inf"),
    "name": "ä",
    "none": None,
    "flags": [True, False],
    "trees": {"column": np.arange(6, dtype=np.int16).reshape(2, 3), "empty": np.zeros((0, 4))},
    "mask": np.array([True, False]),
}


def saved(folder: Path, state: dict[str, Any]) -> Path:
    plain_checkpoint.save(folder, {"best.pt": plain_checkpoint.snapshot(state)})
    return folder / "best.pt"


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    path = saved(tmp_path / "new" / "folder", STATE)
    assert plain_checkpoint.is_plain_checkpoint(path)
    loaded = plain_checkpoint.load(path)
    trees, read = STATE["trees"], loaded.pop("trees")
    for name in trees:
        np.testing.assert_array_equal(read[name], trees[name], strict=True)
    np.testing.assert_array_equal(loaded.pop("mask"), STATE["mask"], strict=True)
    assert loaded == {name: STATE[name] for name in loaded}
    assert [entry.name for entry in path.parent.iterdir()] == ["best.pt"]


def test_it_is_written_and_read_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys, numpy\nfrom pathlib import Path\n"
        "from automl.in_trial.checkpoints import plain_checkpoint\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "plain_checkpoint.save(folder, {'a.pt': {'a': numpy.arange(3)}})\n"
        "assert plain_checkpoint.load(folder / 'a.pt')['a'].tolist() == [0, 1, 2]\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_file_of_torchs_is_none_of_these(tmp_path: Path) -> None:
    torch_checkpoint.save(tmp_path, {"best.pt": {"a": 1}})
    assert not plain_checkpoint.is_plain_checkpoint(tmp_path / "best.pt")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        plain_checkpoint.load(tmp_path / "best.pt")
    with pytest.raises(FileNotFoundError):
        plain_checkpoint.load(tmp_path / "absent.pt")
    assert not plain_checkpoint.is_plain_checkpoint(tmp_path / "absent.pt")


def test_a_zip_that_says_a_later_version_is_refused(tmp_path: Path) -> None:
    plain_checkpoint.save(tmp_path, {"best.pt": {"a": 1}})
    path = tmp_path / "best.pt"
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 64  # the version that is needed to unpack it
    path.write_bytes(content)
    assert not plain_checkpoint.is_plain_checkpoint(path)
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        plain_checkpoint.load(path)


def test_a_snapshot_does_not_change_with_later_training() -> None:
    state: dict[str, Any] = {"a": np.zeros(3), "list": [np.ones(2)]}
    taken = plain_checkpoint.snapshot(state)
    state["a"] += 1
    state["list"][0] += 1
    assert taken["a"].tolist() == [0, 0, 0]
    assert taken["list"][0].tolist() == [1, 1]


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(TypeError, match=r"checkpoint\['a'\]\[1\] is a builtins.object: "):
        plain_checkpoint.snapshot({"a": [1, object()]})


def test_what_shrinks_to_nothing_is_read_back(tmp_path: Path) -> None:
    """A reader that takes no bombs would refuse a forest that says the same of every row."""
    zeros = np.zeros(10_000_000, dtype=np.int8)
    path = saved(tmp_path, {"zeros": zeros})
    np.testing.assert_array_equal(plain_checkpoint.load(path)["zeros"], zeros)


def test_a_full_disk_is_said_and_the_file_of_before_stands(tmp_path: Path) -> None:
    path = saved(tmp_path, {"epoch": 1})
    big = {"epoch": 2, "a": np.random.default_rng(0).random(100_000)}
    with no_room_beyond(100_000), pytest.raises(StorageError, match=r"best\.pt: .* Make room"):
        plain_checkpoint.save(tmp_path, {"best.pt": big})
    assert plain_checkpoint.load(path) == {"epoch": 1}


# --- a stranger's ---


def write(path: Path, content: object, parts: dict[str, bytes], **how: Any) -> Path:
    """A file by hand."""
    with zipfile.ZipFile(path, "w") as archive:
        said = {"format": plain_checkpoint.FORMAT, "content": content}
        archive.writestr("state.json", json.dumps(said), **how)
        for name, body in parts.items():
            archive.writestr(name, body, zipfile.ZIP_DEFLATED)
    return path


def array(number: object = 0, dtype: object = "<i4", shape: object = (2,)) -> dict[str, object]:
    return {"array": number, "dtype": dtype, "shape": shape}


@pytest.mark.parametrize(
    ("content", "parts", "why"),
    [
        ({"a": array(dtype="O")}, {"arrays/0": bytes(8)}, "no known type"),
        ({"a": array(dtype="<U9999999")}, {"arrays/0": bytes(8)}, "no known type"),
        ({"a": array(shape=[2**60])}, {"arrays/0": bytes(8)}, "another size"),
        ({"a": array(shape=[-2])}, {"arrays/0": bytes(8)}, "no shape"),
        ({"a": array(shape=8)}, {"arrays/0": bytes(8)}, "no shape"),
        ({"a": array(), "b": array()}, {"arrays/0": bytes(8)}, "two places"),
        ({"a": array("../0")}, {"arrays/0": bytes(8)}, "no known type"),
        ({"a": array(1)}, {"arrays/0": bytes(8)}, "no item named"),
        ({"a": 1}, {"arrays/0": bytes(8), "data.pkl": b"."}, "not those of a checkpoint"),
        ([1], {}, "holds no dict"),
    ],
)
def test_what_automl_did_not_write_is_refused(
    content: object, parts: dict[str, bytes], why: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "best.pt", content, parts)
    with pytest.raises(ValueError, match=why):
        plain_checkpoint.load(path)


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    path = write(tmp_path / "best.pt", {"a": array(shape=[2**24])}, {"arrays/0": bytes(2**26)})
    with pytest.raises(ValueError, match="32 times as large unpacked"):
        plain_checkpoint.load(path)


def test_nested_without_end_or_compressed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("state.json", "[" * 1_000_000)
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        plain_checkpoint.load(path)
    write(path, {"a": "x" * 10_000_000}, {}, compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="is compressed"):
        plain_checkpoint.load(path)


def test_one_flipped_bit_or_a_cut_is_seen(tmp_path: Path) -> None:
    path = saved(tmp_path, {"a": np.random.default_rng(0).random(50), "b": "text"})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        read = loaded_or_none(path)
        assert read is None or read == "same", place
    path.write_bytes(whole[:-10])
    assert loaded_or_none(path) is None


def loaded_or_none(path: Path) -> str | None:
    """Of a field that nobody reads (a date) a flip changes nothing."""
    try:
        read = plain_checkpoint.load(path)
    except ValueError:
        return None
    expected = np.random.default_rng(0).random(50)
    same = read["b"] == "text" and np.array_equal(read["a"], expected)
    return "same" if same else "other"
