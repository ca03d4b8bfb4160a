"""Checkpoint files of families that train without torch: a zip of arrays and what says where they
belong, written and read by numpy alone.

`state.json` is the content as JSON, in which `{"array": n, "dtype": …, "shape": …}` stands for the
bytes of `arrays/n`. The JSON is stored as it is and the arrays are compressed, so what is read is
bounded by the file: nothing in it is code, no array is of another size than it says, and all of
them are at most `MAX_RATIO` times as large as the file. It stands where `torch_checkpoint.py`
stands for
torch's files: the same three functions, the same errors.

Checkpoint files put in place: each whole or not there, whatever is in them.

A file written straight to its name under `kill -9` was unreadable in 10 of 12 kills; written
beside, flushed and renamed in none.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from automl.errors import StorageError
from automl.record.disk import flush_folder, make_folder, open_replacing
from automl.record.lease import TrialFolderFence


def write_files(
    folder: Path,
    contents: Mapping[str, Mapping[str, Any]],
    write: Callable[[Mapping[str, Any], BinaryIO], object],
    fence: TrialFolderFence | None = None,
) -> None:
    """Write checkpoints into `folder` under their names, one after another: each beside, flushed,
    renamed. When it returns they are on disk, names included, for which all share one flush.

    Raises StorageError where the disk does not take one, and OthersFolderError where the folder is
    not this attempt's any more; the file of before then still stands.
    """
    path, fence = folder, fence or TrialFolderFence(folder, 0)
    try:
        parents = make_folder(folder)
        for name, content in contents.items():
            path = folder / name
            fence.check()  # or what another writes beside it would be removed
            with open_replacing(path, fence.check) as file:
                write(content, file)
        for changed in (folder, *parents):
            flush_folder(changed)
    except OSError as error:
        raise StorageError(
            f"{path}: the checkpoint could not be written: {error.strerror or error}. "
            "Make room or mend the folder, and resume the study."
        ) from error


FORMAT = "automl-arrays-1"
"""Stands in each file; a change of its layout is a new number."""
MAX_RATIO = 32
"""Arrays may be so many times as large as their file, and this much more:"""
SPARE_BYTES = 2**20
_STATE, _ARRAYS = "state.json", "arrays/"
_LEVEL = 1
"""Of zlib. Thresholds and values hardly shrink at any; the others do at the first."""
_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<f4", "<f8")
_PLAIN = (bool, int, float, str, type(None))
_KEYS = {"array", "dtype", "shape"}


def snapshot(state: object, where: str = "checkpoint") -> Any:
    """A copy of `state` that later training does not change. Arrays that cannot be written to are
    taken as they are.

    Raises TypeError naming the place of a value that is neither an array nor plain.
    """
    if isinstance(state, np.ndarray):
        return state.copy() if state.flags.writeable else state
    if type(state) in _PLAIN:
        return state
    if isinstance(state, np.generic):
        return snapshot(state.item(), where)
    if isinstance(state, Mapping):
        return {str(key): snapshot(value, f"{where}[{key!r}]") for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [snapshot(value, f"{where}[{i}]") for i, value in enumerate(state)]
    raise TypeError(
        f"{where} is a {type(state).__module__}.{type(state).__qualname__}: a checkpoint of a "
        "family without torch holds arrays, numbers, strings, None, and lists and dicts of them."
    )


def save(
    folder: Path, contents: Mapping[str, Mapping[str, Any]], fence: TrialFolderFence | None = None
) -> None:
    """Write checkpoints into `folder` under their names; see `write_files`, which says what is
    raised."""
    write_files(folder, contents, _write, fence)


def load(path: Path) -> dict[str, Any]:
    """What a file holds. Raises FileNotFoundError, and ValueError for one that is no such file."""
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_foreign(archive, path.stat().st_size)
            written = json.loads(archive.read(_STATE))
            if not isinstance(written, dict) or written.get("format") != FORMAT:
                raise ValueError(f"its {_STATE} is not of {FORMAT}")
            content = _ArchivedArrays(archive).put_back(written["content"])
    except FileNotFoundError:
        raise
    except Exception as error:  # a stranger's file brings about whatever zipfile and json raise
        line = next(iter(str(error)[:300].splitlines()), type(error).__name__)
        raise ValueError(f"{path}: not a readable checkpoint ({line}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a checkpoint of automl (it holds no dict).")
    return content


def is_plain_checkpoint(path: Path) -> bool:
    """Whether a file is one of these, by the names of its parts; of what cannot be read: no."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _STATE in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


# --- writing ---


def _write(content: Mapping[str, Any], file: BinaryIO) -> None:
    arrays: list[npt.NDArray[Any]] = []
    text = json.dumps({"format": FORMAT, "content": _without_arrays(content, arrays)})
    begin = file.tell()
    _write_zip(file, text, arrays, zipfile.ZIP_DEFLATED)
    if not _is_bounded(sum(array.nbytes for array in arrays), file.tell() - begin):
        file.seek(begin)  # of zeros, say: `load` would take it for a bomb
        file.truncate()
        _write_zip(file, text, arrays, zipfile.ZIP_STORED)


def _write_zip(file: BinaryIO, text: str, arrays: list[npt.NDArray[Any]], compression: int) -> None:
    with zipfile.ZipFile(file, "w", compresslevel=_LEVEL) as archive:
        archive.writestr(zipfile.ZipInfo(_STATE), text)
        for number, array in enumerate(arrays):
            info = zipfile.ZipInfo(f"{_ARRAYS}{number}")
            archive.writestr(info, array.tobytes(), compression, _LEVEL)


def _without_arrays(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """The value as JSON takes it; its arrays go to `arrays`."""
    if isinstance(value, np.ndarray):
        dtype = value.dtype.newbyteorder("<").str
        assert dtype in _DTYPES, f"no array of a checkpoint: {dtype}"
        arrays.append(value.astype(dtype, copy=False))
        return {"array": len(arrays) - 1, "dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        assert set(value) != _KEYS, "would be taken for an array"
        return {str(key): _without_arrays(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(inner, arrays) for inner in value]
    return value


# --- reading ---


def _refuse_foreign(archive: zipfile.ZipFile, file_bytes: int) -> None:
    """Raises ValueError for what `save` did not write."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if sorted(names) != sorted([_STATE, *(f"{_ARRAYS}{n}" for n in range(len(infos) - 1))]):
        raise ValueError("its parts are not those of a checkpoint of automl")
    if archive.getinfo(_STATE).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"its {_STATE} is compressed, and automl compresses none")
    if not _is_bounded(sum(info.file_size for info in infos), file_bytes):
        raise ValueError(f"it would be more than {MAX_RATIO} times as large unpacked")


def max_array_bytes(file_bytes: int) -> int:
    """That arrays of a file may take in memory."""
    return MAX_RATIO * file_bytes + SPARE_BYTES


def _is_bounded(n_bytes: int, file_bytes: int) -> bool:
    return n_bytes <= max_array_bytes(file_bytes)


class _ArchivedArrays:
    """Those of a file, each for one place: else a small file could ask for one a million times."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._taken: set[int] = set()

    def put_back(self, value: Any) -> Any:
        """The value with its arrays."""
        if isinstance(value, dict):
            if set(value) == _KEYS:
                return self._array(value)
            return {key: self.put_back(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.put_back(inner) for inner in value]
        return value

    def _array(self, said: Mapping[str, Any]) -> npt.NDArray[Any]:
        """zipfile checks its CRC."""
        number, dtype, shape = said["array"], said["dtype"], said["shape"]
        if dtype not in _DTYPES or type(number) is not int or number in self._taken:
            raise ValueError("an array of no known type, or that stands in two places")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array of no shape")
        self._taken.add(number)
        content = self._archive.read(f"{_ARRAYS}{number}")
        if math.prod(shape) * np.dtype(dtype).itemsize != len(content):
            raise ValueError("an array of another size than it says")
        return np.frombuffer(content, dtype).reshape(shape)
