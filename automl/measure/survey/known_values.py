"""The known values of fake device tensors: small tensors of integers and booleans.

Floats are not computed. Integers and booleans mostly come from the host (labels, lengths, masks,
indices), decide sizes and cost nothing. Their values are kept beside the fake tensor if all values
that they follow from are known. An unknown number is made up. For integers it is the largest
possible value, because a size should not be too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map


def tensors_in(*trees: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts of any depth.

    torch's own trees take three times as long.
    """
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            yield tree
        elif isinstance(tree, list | tuple):
            yield from tensors_in(*tree)
        elif isinstance(tree, dict):
            yield from tensors_in(*tree.values())


def fakes_in(*trees: object) -> list[FakeTensor]:
    """Return the device tensors (fakes) in lists, tuples and dicts of any depth."""
    return [tensor for tensor in tensors_in(*trees) if isinstance(tensor, FakeTensor)]


MAX_KNOWN = 2**20
"""The most elements of a tensor whose values are kept: 8 MiB of main memory."""
UNKNOWN_FLOAT = 0.5
"""The value of every float that the host reads."""
_KNOWN, _LARGEST = "_automl_known", "_automl_most"
"""The attributes of fake tensors with their known values, and with their largest possible value."""
_COUNTS = frozenset({"sum", "count_nonzero", "cumsum", "bincount"})


class KnownValues:
    """Keeps known values as attributes of the fake tensors."""

    def __init__(self, truth: bool) -> None:
        self.truth = truth
        """The assumed value of unknown booleans."""
        self._stale: set[int] = set()
        """The storages to which an unknown value was written."""

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a device tensor, on the host; None if they are unknown."""
        values: torch.Tensor | None = getattr(tensor, _KNOWN, None)
        if values is None or values.untyped_storage()._cdata in self._stale:
            return None
        return values

    def learn(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Set the known values of a device tensor; views of `values` stand for views of it."""
        setattr(tensor, _KNOWN, values)

    def can_keep(self, tensor: torch.Tensor) -> bool:
        """Return whether type and size of a tensor allow to keep its values."""
        return _is_whole(tensor) and tensor.numel() <= MAX_KNOWN

    def learn_copy(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """Learn the values of a device tensor that is a copy of a host tensor, if cheap."""
        if self.can_keep(tensor) and _is_whole(source):
            self.learn(tensor, source.detach().clone().to(tensor.dtype))

    def largest(self, tensor: torch.Tensor) -> int:
        """Return the largest value that an integer tensor could hold."""
        values = self.known(tensor)
        if values is None:
            return int(getattr(tensor, _LARGEST, 1))
        return int(values.max()) if values.numel() else 0

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any, fakes: Sequence[Any]) -> None:
        """Learn the values of `out`, which `func` has made of fakes."""
        outs = list(tensors_in(out))
        integers = [o for o in outs if _is_whole(o)]
        if integers and len(integers) == len(outs) and self._can_compute(outs, fakes):
            real_args, real_kwargs = self.real((args, kwargs))
            results = tensors_in(func(*real_args, **real_kwargs))
            for tensor, values in zip(outs, results, strict=True):
                self.learn(tensor, values)
            return
        self._forget_written(func, args, kwargs)
        for tensor in integers:
            setattr(tensor, _LARGEST, self._largest_result(func, fakes))

    def _forget_written(self, func: Any, args: Sequence[Any], kwargs: Any) -> None:
        """Forget the values of the arguments that `func` has overwritten with unknown ones."""
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            written = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in tensors_in(written):
                if (values := getattr(tensor, _KNOWN, None)) is not None:
                    self._stale.add(values.untyped_storage()._cdata)

    def on_host(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the values of a device tensor on the host, known or made up."""
        values = self.known(tensor)
        if values is None:
            values = torch.full(tensor.shape, self._guess(tensor), dtype=tensor.dtype)
        return values.detach().clone().to(dtype or tensor.dtype)

    def item(self, tensor: torch.Tensor) -> Any:
        """Return the value of a device tensor of one element, known or made up."""
        values = self.known(tensor)
        return self._guess(tensor) if values is None else values.item()

    def _can_compute(self, outs: Sequence[torch.Tensor], fakes: Sequence[torch.Tensor]) -> bool:
        return sum(o.numel() for o in outs) <= MAX_KNOWN and self.all_known(fakes)

    def all_known(self, fakes: Sequence[torch.Tensor]) -> bool:
        return all(self.known(fake) is not None for fake in fakes)

    def real(self, tree: Any) -> Any:
        """Return a tree with the known values in place of fake tensors, on the host."""

        def convert(leaf: Any) -> Any:
            values = getattr(leaf, _KNOWN, None) if isinstance(leaf, torch.Tensor) else None
            return leaf if values is None else values

        return tree_map(convert, tree)

    def _guess(self, tensor: torch.Tensor) -> Any:
        if tensor.dtype is torch.bool:
            return self.truth
        return getattr(tensor, _LARGEST, 1) if _is_whole(tensor) else UNKNOWN_FLOAT

    def _largest_result(self, func: Any, fakes: Sequence[torch.Tensor]) -> int:
        """Return the largest integer that `func` could have made: a count, or a position."""
        name = func._schema.name.removeprefix("aten::")
        most = max((getattr(fake, _LARGEST, 1) for fake in fakes), default=1)
        if name in _COUNTS:
            return most * max(fake.numel() for fake in fakes)
        if any(not _is_whole(fake) for fake in fakes):  # argmax, topk, sort and the like
            return max(1, *(max(fake.shape, default=1) - 1 for fake in fakes))
        return int(most)


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())
