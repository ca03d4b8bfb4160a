"""What the arguments of an operation hold; torch's own trees take three times as long."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor


def tensors_in(*trees: object) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts of whatever depth."""
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            yield tree
        elif isinstance(tree, list | tuple):
            yield from tensors_in(*tree)
        elif isinstance(tree, dict):
            yield from tensors_in(*tree.values())


def fakes_in(*trees: object) -> list[FakeTensor]:
    """The tensors of the device among them."""
    return [tensor for tensor in tensors_in(*trees) if isinstance(tensor, FakeTensor)]
