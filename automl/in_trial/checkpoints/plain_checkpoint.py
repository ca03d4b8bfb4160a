"""Writes and reads checkpoint files of families that train without torch, with only numpy.

A file is a zip. Its `state.json` is the content as JSON, in which `{"array": n, "dtype": …,
"shape": …}` stands for the bytes of `arrays/n`, which are compressed. Nothing in it is code, and
all arrays together are at most `MAX_RATIO` times as large as the file.

`write_files` and `read_file` serve `torch_checkpoint.py`, too. A file written straight to its name
was unreadable after 10 of 12 `kill -9`; one written beside it, flushed and renamed, after none.
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
from automl.record.texts import parse_json


def write_files(
    folder: Path,
    contents: Mapping[str, Mapping[str, Any]],
    write: Callable[[Mapping[str, Any], BinaryIO], object],
    fence: TrialFolderFence | None = None,
) -> None:
    """Write checkpoints into `folder` under their names, one after another.

    Each file is written beside its name, flushed and renamed. After the return, files and names are
    on disk; one flush of the folder serves all names. Raises StorageError if a file cannot be
    written, and FolderTakenOverError if the folder no longer belongs to this attempt; the earlier
    file then remains.
    """
    path, fence = folder, fence or TrialFolderFence(folder, 0)
    try:
        parents = make_folder(folder)
        for name, content in contents.items():
            path = folder / name
            fence.check()  # else the unfinished file of another attempt would be removed
            with open_replacing(path, fence.check) as file:
                write(content, file)
        for changed in (folder, *parents):
            flush_folder(changed)
    except OSError as error:
        raise StorageError(
            f"{path}: the checkpoint could not be written: {error.strerror or error}. "
            "Make room or mend the folder, and resume the study."
        ) from error


def read_file(path: Path, read: Callable[[Path], object]) -> dict[str, Any]:
    """Return what `read` returns for a checkpoint file.

    Raises FileNotFoundError, and ValueError if it fails in any way or returns no dict.
    """
    if path.exists() and not path.is_file():  # a device may never end, and a pipe never begin
        raise ValueError(f"{path}: not a readable checkpoint (it is no regular file).")
    try:
        content = read(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch, zipfile and json may raise anything for a stranger's file
        line = next(iter(str(error)[:300].splitlines()), type(error).__name__)
        raise ValueError(f"{path}: not a readable checkpoint ({line}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a checkpoint of automl (it holds no dict).")
    return content


FORMAT = "automl-arrays-1"
"""The format's name, which each file contains; a changed layout gets a new number."""
MAX_RATIO = 32
"""The arrays of a file may take this many times the size of the file, plus `SPARE_BYTES`."""
SPARE_BYTES = 2**20
"""Bytes that arrays may take beyond `MAX_RATIO` times the size of their file."""
_STATE, _ARRAYS = "state.json", "arrays/"
_LEVEL = 1
"""The level of zlib. Thresholds and values hardly shrink at any level; the rest does at level 1."""
_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<f4", "<f8")
_PLAIN = (bool, int, float, str, type(None))
_KEYS = {"array", "dtype", "shape"}


def snapshot(state: object, where: str = "checkpoint") -> Any:
    """Return a copy of `state` that later training does not change.

    Read-only arrays are not copied. Raises TypeError, with the place, for a value that is neither
    an array nor plain.
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
    """Write checkpoints into `folder` under their names; `write_files` documents the exceptions."""
    write_files(folder, contents, _write, fence)


def load(path: Path) -> dict[str, Any]:
    """Return a file's content. Raises FileNotFoundError, and ValueError for a foreign file."""
    return read_file(path, _read)


def is_plain_checkpoint(path: Path) -> bool:
    """Return whether a file has the parts of this format; False if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with zipfile.ZipFile(path) as archive:
            return _STATE in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):  # of a later version
        return False


# --- writing ---


def _write(content: Mapping[str, Any], file: BinaryIO) -> None:
    arrays: list[npt.NDArray[Any]] = []
    text = json.dumps({"format": FORMAT, "content": _without_arrays(content, arrays)})
    begin = file.tell()
    _write_zip(file, text, arrays, zipfile.ZIP_DEFLATED)
    if not _is_bounded(sum(array.nbytes for array in arrays), file.tell() - begin):
        file.seek(begin)  # it shrank too much (zeros, say): `load` would take it for a zip bomb
        file.truncate()
        _write_zip(file, text, arrays, zipfile.ZIP_STORED)


def _write_zip(file: BinaryIO, text: str, arrays: list[npt.NDArray[Any]], compression: int) -> None:
    with zipfile.ZipFile(file, "w", compresslevel=_LEVEL) as archive:
        archive.writestr(zipfile.ZipInfo(_STATE), text)
        for number, array in enumerate(arrays):
            info = zipfile.ZipInfo(f"{_ARRAYS}{number}")
            archive.writestr(info, array.tobytes(), compression, _LEVEL)


def _without_arrays(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Return the value as JSON takes it, and append its arrays to `arrays`."""
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


def _read(path: Path) -> object:
    with zipfile.ZipFile(path) as archive:
        _refuse_foreign(archive, path.stat().st_size)
        written = parse_json(archive.read(_STATE))
        if not isinstance(written, dict) or written.get("format") != FORMAT:
            raise ValueError(f"its {_STATE} is not of {FORMAT}")
        return _ArchivedArrays(archive).restore(written["content"])


def _refuse_foreign(archive: zipfile.ZipFile, file_bytes: int) -> None:
    """Raise ValueError for an archive that `save` did not write."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if sorted(names) != sorted([_STATE, *(f"{_ARRAYS}{n}" for n in range(len(infos) - 1))]):
        raise ValueError("its parts are not those of a checkpoint of automl")
    if archive.getinfo(_STATE).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"its {_STATE} is compressed, and automl compresses none")
    if not _is_bounded(sum(info.file_size for info in infos), file_bytes):
        raise ValueError(f"it would be more than {MAX_RATIO} times as large unpacked")


def max_array_bytes(file_bytes: int) -> int:
    """Return the largest number of bytes that the arrays of a file may take in memory."""
    return MAX_RATIO * file_bytes + SPARE_BYTES


def _is_bounded(n_bytes: int, file_bytes: int) -> bool:
    return n_bytes <= max_array_bytes(file_bytes)


class _ArchivedArrays:
    """The arrays of a file, each for one place in the content.

    Otherwise a small file could ask for one array a million times.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._used: set[int] = set()

    def restore(self, value: Any) -> Any:
        """Return the value with its arrays in place."""
        if isinstance(value, dict):
            if set(value) == _KEYS:
                return self._array(value)
            return {key: self.restore(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.restore(inner) for inner in value]
        return value

    def _array(self, header: Mapping[str, Any]) -> npt.NDArray[Any]:
        """Return the array that `header` describes. zipfile checks the CRC of its bytes."""
        number, dtype, shape = header["array"], header["dtype"], header["shape"]
        if dtype not in _DTYPES or type(number) is not int or number in self._used:
            raise ValueError("an array of no known type, or that stands in two places")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array of no shape")
        self._used.add(number)
        content = self._archive.read(f"{_ARRAYS}{number}")
        if math.prod(shape) * np.dtype(dtype).itemsize != len(content):
            raise ValueError("an array of another size than it says")
        return np.frombuffer(content, dtype).reshape(shape)
