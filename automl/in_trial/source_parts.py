"""Checks what a user's function returned, and splits it into parts: rows with targets.

An error gives the rule, the value and the remedy. `source.py` calls the function, and `loader.py`
brings the rows to a device.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from automl.config.command_arguments import ALL_ROWS, TRAIN_ROWS
from automl.data.dataset import RefitRows
from automl.errors import ConfigError

NAMES = ("train", "validation", "test")
_NUMBER = "n_outputs"
_WANTED = 'it must return {"train": (x, y), "validation": (x, y)}, and "test" if there is one'


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows `x` (N, …) and their targets `y` (N, …), both on the CPU."""

    x: torch.Tensor
    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.x)

    def row(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first row and its targets."""
        return self.x[0], self.y[0]


@dataclass(frozen=True, eq=False)
class DatasetItems:
    """Rows in a Dataset of torch's, which returns a row and its targets by number."""

    items: Dataset[Any]
    where: str

    def __len__(self) -> int:
        n_rows: int = len(self.items)  # type: ignore[arg-type]  # `_items` has checked it
        return n_rows

    def row(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first row and its targets. Raises ConfigError if they are no numbers."""
        return self.pair(0)

    def pair(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a row and its targets. Raises ConfigError if the item is no pair of numbers."""
        item = self.items[number]
        if not _is_pair(item):
            raise ConfigError(
                f"{self.where}: row {number} is {_described(item)}; an item must be a pair (x, y) "
                "of tensors, arrays or numbers."
            )
        x, y = (to_tensor(item[at], f"{self.where}'s {name}") for at, name in enumerate("xy"))
        return x, y


SourcePart: TypeAlias = "ArrayRows | DatasetItems"


@dataclass(frozen=True, eq=False)
class SourceParts:
    """The parts that a source returns: training, validation, and perhaps test rows."""

    train: SourcePart
    validation: SourcePart
    test: SourcePart | None = None
    n_outputs: int | None = None
    """Number of classes, if the source returns it."""

    @property
    def all(self) -> Mapping[str, SourcePart]:
        """The parts that exist, by name."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in found.items() if part is not None}


def parse_parts(returned: object, source: str) -> SourceParts:
    """Return the parts that the user's function returned. Raises ConfigError for anything else."""
    key = f"data.source={source}"
    if isinstance(returned, tuple) and len(returned) in (2, 3):
        returned = dict(zip(NAMES, returned, strict=False))
    if not isinstance(returned, Mapping):
        raise ConfigError(f"{key} returned {_described(returned)}; {_WANTED}.")
    _check_names(returned, key)
    n_outputs = returned.get(_NUMBER)
    if n_outputs is not None and (type(n_outputs) is not int or n_outputs < 1):
        raise ConfigError(
            f"{key}: {_NUMBER} is {_described(n_outputs)}; it must be a whole number from 1, the "
            "classes that there are."
        )
    parts = {
        name: _part(returned[name], key, name) for name in NAMES if returned.get(name) is not None
    }
    _check_alike(parts, key)
    return SourceParts(**parts, n_outputs=n_outputs)


def regroup_for_refit(parts: SourceParts, refit: RefitRows, seed: int) -> SourceParts:
    """Return the parts of a final training, by the rules of `data.split.regroup_for_refit`.

    All rows to train on become one part. The validation part, for early stopping, may be empty.
    `seed` draws the held-out rows. Raises ConfigError if too few rows are left.
    """
    train, validation = [parts.train], parts.validation
    if refit.rows != TRAIN_ROWS:
        train.append(validation)
        validation = _select_rows(validation, [])
    if refit.rows == ALL_ROWS and parts.test is not None:
        train.append(parts.test)
    whole = _concatenate(train)
    if refit.hold_out is not None:
        n_rows = len(whole)
        n_held = max(1, round(n_rows * refit.hold_out))
        if n_held >= n_rows:
            raise ConfigError(
                f"hold_out={refit.hold_out}: {n_rows} rows leave none to train on. Give a "
                "smaller share, or leave it out."
            )
        drawn = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed)).tolist()
        validation = _select_rows(whole, sorted(drawn[:n_held]))
        whole = _select_rows(whole, sorted(drawn[n_held:]))
    return replace(parts, train=whole, validation=validation, test=None)


def _concatenate(parts: Sequence[SourcePart]) -> SourcePart:
    """Return one part with the rows of all parts in order, as tensors if all parts are tensors."""
    if len(parts) == 1:
        return parts[0]
    arrays = [part for part in parts if isinstance(part, ArrayRows)]
    if len(arrays) == len(parts):
        return ArrayRows(torch.cat([part.x for part in arrays]), torch.cat([p.y for p in arrays]))
    items = [
        part.items if isinstance(part, DatasetItems) else TensorDataset(part.x, part.y)
        for part in parts
    ]
    where = next(part.where for part in parts if isinstance(part, DatasetItems))
    return DatasetItems(ConcatDataset(items), where)


def _select_rows(part: SourcePart, numbers: Sequence[int]) -> SourcePart:
    """Return the part with only these rows."""
    if isinstance(part, DatasetItems):
        return replace(part, items=Subset(part.items, numbers))
    rows = torch.tensor(numbers, dtype=torch.int64)
    return ArrayRows(part.x[rows], part.y[rows])


def to_tensor(value: object, where: str) -> torch.Tensor:
    """Return numbers in any form as a tensor on the CPU. Raises ConfigError for anything else."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise ConfigError(f"{where} is a sparse tensor; give x.to_dense().")
        if value.is_complex():
            raise ConfigError(f"{where} holds complex numbers; give torch.view_as_real(x).")
        return value.detach().cpu()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        hint = "encode text as numbers, or take data=csv, which does it for a table"
        raise ConfigError(
            f"{where} is {_described(value)} and holds no numbers ({array.dtype}): {hint}."
        )
    return torch.from_numpy(np.array(array, order="C"))


def _check_names(returned: Mapping[Any, Any], key: str) -> None:
    for name in returned:
        if name not in (*NAMES, _NUMBER):
            near = difflib.get_close_matches(str(name), NAMES, n=1, cutoff=0.3)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{key} returned a part {str(name)[:50]!r}; {_WANTED}.{guess}")
    for name in NAMES[:2]:
        if returned.get(name) is None:
            raise ConfigError(f"{key} returned no part {name!r}; {_WANTED}.")


def _part(value: object, key: str, name: str) -> SourcePart:
    where = f"{key}: {name}"
    if type(value) is TensorDataset and len(value.tensors) == 2:  # a subclass may do more
        value = value.tensors
    if isinstance(value, Dataset):
        return _items(value, where)
    if not _is_pair(value):
        raise ConfigError(
            f"{where} is {_described(value)}; it must be a pair (x, y) of tensors, arrays or "
            "frames, or a torch Dataset of such pairs."
        )
    x, y = (to_tensor(value[at], f"{where}'s {letter}") for at, letter in enumerate("xy"))
    if x.ndim < 2 or not y.ndim:
        raise ConfigError(
            f"{where}: x is {tuple(x.shape)} and y {tuple(y.shape)}; they must be (rows, …), x "
            "with two dimensions at least: x[:, None] of a single column."
        )
    if len(x) != len(y):
        raise ConfigError(
            f"{where}: x has {len(x):,} rows and y {len(y):,}; give each row its target."
        )
    if not len(x):
        raise ConfigError(f"{where} has no rows; give some to it.")
    if y.ndim == 2 and y.shape[1] == 1 and holds_whole_numbers(y):  # a frame with one column
        y = y.squeeze(1)
    return ArrayRows(x, y)


def _items(dataset: Dataset[Any], where: str) -> DatasetItems:
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"{where} is a Dataset without __len__ ({name}); its rows must have numbers, since "
            "each epoch draws an order of them: give it __len__ and __getitem__."
        )
    items = DatasetItems(dataset, where)
    if not len(items):
        raise ConfigError(f"{where} has no rows ({name} of length 0); give some to it.")
    return items


def _check_alike(parts: Mapping[str, SourcePart], key: str) -> None:
    """Raise ConfigError unless the rows of all parts have one shape and one kind of numbers."""
    x, y = parts["train"].row()
    for name, part in parts.items():
        others = part.row()
        for letter, own, other in zip("xy", (x, y), others, strict=True):
            if own.shape != other.shape or holds_whole_numbers(own) != holds_whole_numbers(other):
                raise ConfigError(
                    f"{key}: a row of {name} has {letter} {_kind(other)}, one of train "
                    f"{_kind(own)}; all parts must be alike."
                )


def holds_whole_numbers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds whole numbers or truth values."""
    return not tensor.is_floating_point()


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _is_pair(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2


def _described(value: object) -> str:
    """Return the kind of a value, for a message."""
    kind = type(value).__name__
    if isinstance(value, tuple | list | Mapping):
        return f"a {kind} of {len(value)}"
    return "None" if value is None else f"a {kind}"
