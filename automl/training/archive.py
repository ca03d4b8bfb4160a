"""What a checkpoint file may consist of, looked at before torch opens it: anyone may have made it.

`weights_only` lets a pickle run no code. It still makes what the pickle asks for, `bytearray(n)`
or `torch.Tensor(n)`, and unpacks what was compressed: a file of a kilobyte could take all memory.
Ours hold stored tensors and plain values, and no other file is read.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path

import torch

_WRITTEN = re.compile(
    r"collections (OrderedDict|Counter)|_codecs encode|torch (device|Size|\w+Storage)|"
    r"torch\.storage UntypedStorage|torch\._utils _rebuild_\w+|torch\.serialization _get_layout"
)
"""What the pickles that `checkpoint.save` writes ask for, besides torch's dtypes."""
_IMPORTS = ("GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")


def refuse_foreign(path: Path) -> None:
    """Raises ValueError, saying why, for a file that `checkpoint.save` did not write; OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_parts(archive.infolist())
            for info in archive.infolist():
                if info.filename.lower().endswith(".pkl"):
                    _check_pickle(archive.read(info))
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error


def _check_parts(parts: list[zipfile.ZipInfo]) -> None:
    if any(part.file_size != part.compress_size for part in parts):
        raise ValueError("it is compressed, and automl compresses none")
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
