"""Checkpoint files: whole or not there, and readable with `weights_only=True`.

A file written straight to its name under `kill -9` was unreadable in 10 of 12 kills; written
beside, flushed and renamed in none.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from automl.errors import StorageError
from automl.record.disk import flush_folder, make_folder, replacing
from automl.training.archive import refuse_foreign

_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
# Kept as they are, because weights_only knows them; other mappings become dict.
_MAPPINGS: tuple[type[dict[Any, Any]], ...] = (OrderedDict, Counter)


def snapshot(state: object, where: str = "checkpoint") -> Any:
    """A copy of `state` that later training does not change: tensors on the CPU, values plain.

    Raises TypeError naming the place of a value that `weights_only=True` would refuse to read.
    """
    if isinstance(state, torch.Tensor):
        own = state.detach() if state.requires_grad else state  # a state_dict's are detached
        return own.clone() if own.is_cpu else own.cpu()
    if type(state) in _PLAIN:
        return state
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, Mapping):
        copied = {k: snapshot(v, f"{where}[{k!r}]") for k, v in state.items()}
        return next((kind(copied) for kind in _MAPPINGS if isinstance(state, kind)), copied)
    if isinstance(state, list | tuple) and all(type(v) in _PLAIN for v in state):
        # A table's categories come by the hundred: one by one they cost 90 µs a report.
        return list(state) if isinstance(state, list) else tuple(state)
    if isinstance(state, list | tuple):
        items = [snapshot(v, f"{where}[{i}]") for i, v in enumerate(state)]
        return items if isinstance(state, list) else tuple(items)
    raise TypeError(
        f"{where} is a {type(state).__module__}.{type(state).__qualname__}: a checkpoint holds "
        "tensors, numbers, strings, None, and lists, tuples and dicts of them. "
        "Use state_dict() for a model or optimizer and torch.from_numpy for an array."
    )


def save(folder: Path, contents: Mapping[str, Mapping[str, Any]]) -> None:
    """Write checkpoints into `folder` under their names, one after another: each beside, flushed,
    renamed. When it returns they are on disk, names included, for which all share one flush.

    Raises StorageError where the disk does not take one; the file of before then still stands.
    """
    path = folder
    try:
        parents = make_folder(folder)
        for name, content in contents.items():
            path = folder / name
            with replacing(path) as file:
                torch.save(content, file)
        for changed in (folder, *parents):
            flush_folder(changed)
    except OSError as error:
        raise StorageError(
            f"{path}: the checkpoint could not be written: {error.strerror or error}. "
            "Make room or mend the folder, and resume the study."
        ) from error


def load(path: Path) -> dict[str, Any]:
    """What a checkpoint file holds, tensors on the CPU.

    Raises FileNotFoundError, and ValueError for a file that is no checkpoint.
    """
    try:
        refuse_foreign(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises many kinds for a file that is not its own
        raise ValueError(f"{path}: not a readable checkpoint ({_first_line(error)}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a checkpoint of automl (it holds no dict).")
    return content


def _first_line(error: Exception) -> str:
    return next(iter(str(error)[:300].splitlines()), type(error).__name__)
