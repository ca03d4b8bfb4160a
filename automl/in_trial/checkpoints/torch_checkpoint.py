"""Writes and reads checkpoint files in torch's format, readable with `weights_only=True`.

With `weights_only` a pickle runs no code. But torch still makes what the pickle asks for,
`bytearray(n)` or `torch.Tensor(n)`, and unpacks compressed parts: a file of a kilobyte could take
all memory. So the parts of a file are checked before torch opens it.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import numpy as np
import torch

from automl.in_trial.checkpoints.plain_checkpoint import read_file, write_files
from automl.record.lease import TrialFolderFence

_WRITTEN = re.compile(
    r"collections (OrderedDict|Counter)|_codecs encode|torch (device|Size|\w+Storage)|"
    r"torch\.storage UntypedStorage|torch\._utils _rebuild_\w+|torch\.serialization _get_layout"
)
"""The names that pickles written by `save` import, besides torch's dtypes."""
_FOLDER = 0x10
"""Attribute of a folder in a zip. torch leaves the tensor of such a part as its memory was."""
_IMPORTS = ("GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")


def refuse_foreign_archive(path: Path) -> None:
    """Raise ValueError, with the reason, for a damaged file or one that `save` did not write;
    OSError, too."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_parts(archive.infolist())
            for info in archive.infolist():
                if info.filename.lower().endswith(".pkl"):
                    _check_pickle(archive.read(info))
            damaged = archive.testzip()  # torch itself reads weights with flipped bits
            if damaged is not None:
                raise ValueError(f"its part {damaged} is not what its checksum was made of")
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


def _check_parts(parts: list[zipfile.ZipInfo]) -> None:
    if any(part.file_size != part.compress_size for part in parts):
        raise ValueError("it is compressed, and automl compresses none")
    if any(part.is_dir() or part.external_attr & _FOLDER for part in parts):
        raise ValueError("one of its parts is marked as a folder, of which torch reads nothing")
    if len({part.filename.lower() for part in parts}) < len(parts):
        raise ValueError("two of its parts have one name")


def _check_pickle(pickled: bytes) -> None:
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in _IMPORTS and not _is_ours(str(argument)):
            raise ValueError(f"it asks for {str(argument)[:100]!r}, which automl writes into none")


def _is_ours(name: str) -> bool:
    module, _, attribute = name.partition(" ")
    if module == "torch" and isinstance(getattr(torch, attribute, None), torch.dtype):
        return True
    return _WRITTEN.fullmatch(name) is not None


_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
# torch reads these types with weights_only; other mappings become dict.
_MAPPINGS: tuple[type[dict[Any, Any]], ...] = (OrderedDict, Counter)


def snapshot(state: object, where: str = "checkpoint") -> Any:
    """Return a copy of `state` that later training does not change.

    Its tensors are on the CPU and its values plain. Raises TypeError, with the place, for a value
    that `weights_only=True` would refuse to read.
    """
    if isinstance(state, torch.Tensor):
        # Tensors of a state_dict are detached already.
        own = state.detach() if state.requires_grad else state
        return own.clone() if own.is_cpu else own.cpu()
    if type(state) in _PLAIN:
        return state
    if (plain := _plain(state)) is not state:
        return plain if isinstance(plain, torch.Tensor) else snapshot(plain, where)
    if isinstance(state, Mapping):
        copied = {_key(k, where): snapshot(v, f"{where}[{k!r}]") for k, v in state.items()}
        return next((kind(copied) for kind in _MAPPINGS if isinstance(state, kind)), copied)
    if isinstance(state, list | tuple) and all(type(v) in _PLAIN for v in state):
        # A table has hundreds of categories; a recursive call for each costs 90 µs a report.
        return list(state) if isinstance(state, list) else tuple(state)
    if isinstance(state, list | tuple):
        items = [snapshot(v, f"{where}[{i}]") for i, v in enumerate(state)]
        return items if isinstance(state, list) else tuple(items)
    raise TypeError(
        f"{where} is a {type(state).__module__}.{type(state).__qualname__}: a checkpoint holds "
        "tensors, numbers, strings, None, and lists, tuples and dicts of them. "
        f"{_remedy(state)}"
    )


def _key(key: object, where: str) -> Any:
    """Return the key of a mapping as a plain value. Raises TypeError."""
    return key if type(key) in _PLAIN else snapshot(key, f"{where}: the key {key!r}")


def _plain(state: object) -> object:
    """Return a plain value with all that `state` holds; `state` itself if there is none.

    A dataclass becomes a dict of its fields, unless the object has more attributes than these.
    """
    if isinstance(state, PurePath):
        return str(state)
    if isinstance(state, np.ndarray):
        return _array_to_tensor(state)
    if isinstance(state, np.generic):
        item = state.item()
        return item if type(item) in _PLAIN else state
    if not is_dataclass(state) or isinstance(state, type | Mapping | list | tuple):
        return state
    names = [field.name for field in fields(state)]
    if set(getattr(state, "__dict__", ())) - set(names):
        return state
    return {name: getattr(state, name) for name in names}


def _array_to_tensor(array: np.ndarray[Any, Any]) -> object:
    """Return a tensor of the same type and values; the array itself if torch lacks the type."""
    if array.dtype == np.uint64:  # tensors fail above 2**63, and Philox's state has such numbers
        return array.tolist()
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except (TypeError, ValueError):
        return array


def _remedy(state: object) -> str:
    if isinstance(state, np.random.Generator | np.random.BitGenerator):
        return "Give its state: `rng.bit_generator.state` of a generator can be set again."
    if isinstance(state, np.random.RandomState):
        return "Give its state: what `get_state()` returns, `set_state` takes again."
    if isinstance(state, np.ndarray):
        return f"torch has no numbers of this kind ({state.dtype}); store a list of plain values."
    if is_dataclass(state) and not isinstance(state, type):
        return "It has more than its fields; store what is needed of it in a dict."
    return "Use state_dict() for a model or optimizer."


def save(
    folder: Path, contents: Mapping[str, Mapping[str, Any]], fence: TrialFolderFence | None = None
) -> None:
    """Write checkpoints into `folder` under their names; `write_files` documents the exceptions."""
    write_files(folder, contents, _write, fence)


def _write(content: Mapping[str, Any], file: BinaryIO) -> None:
    """Write a checkpoint. Raises OSError if the disk fails, which torch turns into another
    exception."""
    try:
        torch.save(content, file)
    except RuntimeError as error:  # its archive's end, after a write that failed
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def load(path: Path) -> dict[str, Any]:
    """Return a file's content on the CPU. Raises FileNotFoundError, and ValueError."""
    return read_file(path, _read)


def _read(path: Path) -> object:
    refuse_foreign_archive(path)
    return torch.load(path, map_location="cpu", weights_only=True)
