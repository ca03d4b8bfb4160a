"""What is known of values on the device, which are not there: small integers, and who asks.

Floats are not computed. Integers and booleans mostly come from the host (labels, lengths, masks,
indices), decide sizes and cost nothing, so they are kept for real beside the fake tensor where all
that they follow from is known. Where it is not, a number is made up: for integers the largest that
could be, since one that is used as a size should not be too small.

What the arguments of an operation hold; torch's own trees take three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map


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


MAX_KNOWN = 2**20
"""Elements of a tensor whose values are kept: 8 MiB of main memory at the most."""
A_FLOAT = 0.5
_KNOWN, _MOST = "_automl_known", "_automl_most"
_COUNTS = frozenset({"sum", "count_nonzero", "cumsum", "bincount"})

Known = torch.Tensor | None


class KnownValues:
    """Keeps what is known on the fake tensors themselves."""

    def __init__(self, truth: bool) -> None:
        self.truth = truth
        """What a boolean that nobody knows is said to be."""
        self._stale: set[int] = set()
        """Storages that something unknown was written to."""

    def known(self, tensor: torch.Tensor) -> Known:
        """The values of a device tensor, on the host; None: nobody knows."""
        values: Known = getattr(tensor, _KNOWN, None)
        if values is None or values.untyped_storage()._cdata in self._stale:
            return None
        return values

    def learn(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Say what a device tensor holds; views of `values` stand for views of it."""
        setattr(tensor, _KNOWN, values)

    def is_kept(self, tensor: torch.Tensor) -> bool:
        """Whether the values of such a tensor are kept where they are known."""
        return _is_whole(tensor) and tensor.numel() <= MAX_KNOWN

    def learn_copy(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """A device tensor holds a copy of one on the host; kept where that costs little."""
        if self.is_kept(tensor) and _is_whole(source):
            self.learn(tensor, source.detach().clone().to(tensor.dtype))

    def most(self, tensor: torch.Tensor) -> int:
        """The largest value that an integer tensor could hold."""
        values = self.known(tensor)
        if values is None:
            return int(getattr(tensor, _MOST, 1))
        return int(values.max()) if values.numel() else 0

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any, fakes: Sequence[Any]) -> None:
        """After `func` made `out` of fakes: what is known of it."""
        outs = list(tensors_in(out))
        whole = [o for o in outs if _is_whole(o)]
        if whole and len(whole) == len(outs) and self._can_compute(outs, fakes):
            real_args, real_kwargs = self.real((args, kwargs))
            results = tensors_in(func(*real_args, **real_kwargs))
            for tensor, values in zip(outs, results, strict=True):
                self.learn(tensor, values)
            return
        self._forget_written(func, args, kwargs)
        for tensor in whole:
            setattr(tensor, _MOST, self._most_of(func, fakes))

    def _forget_written(self, func: Any, args: Sequence[Any], kwargs: Any) -> None:
        """Something that is not known was written into the arguments that `func` changes."""
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in tensors_in(given):
                if (values := getattr(tensor, _KNOWN, None)) is not None:
                    self._stale.add(values.untyped_storage()._cdata)

    def on_host(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The values of a device tensor on the host, known or made up."""
        values = self.known(tensor)
        if values is None:
            values = torch.full(tensor.shape, self._guess(tensor), dtype=tensor.dtype)
        return values.detach().clone().to(dtype or tensor.dtype)

    def item(self, tensor: torch.Tensor) -> Any:
        """The value of a device tensor of one element, known or made up."""
        values = self.known(tensor)
        return self._guess(tensor) if values is None else values.item()

    def _can_compute(self, outs: Sequence[torch.Tensor], fakes: Sequence[torch.Tensor]) -> bool:
        return sum(o.numel() for o in outs) <= MAX_KNOWN and self.all_known(fakes)

    def all_known(self, fakes: Sequence[torch.Tensor]) -> bool:
        return all(self.known(fake) is not None for fake in fakes)

    def real(self, tree: Any) -> Any:
        """The same with known values for fake tensors, on the host."""

        def convert(leaf: Any) -> Any:
            values = getattr(leaf, _KNOWN, None) if isinstance(leaf, torch.Tensor) else None
            return leaf if values is None else values

        return tree_map(convert, tree)

    def _guess(self, tensor: torch.Tensor) -> Any:
        if tensor.dtype is torch.bool:
            return self.truth
        return getattr(tensor, _MOST, 1) if _is_whole(tensor) else A_FLOAT

    def _most_of(self, func: Any, fakes: Sequence[torch.Tensor]) -> int:
        """The largest that an integer made by `func` could be: a count, or a place."""
        name = func._schema.name.removeprefix("aten::")
        most = max((getattr(fake, _MOST, 1) for fake in fakes), default=1)
        if name in _COUNTS:
            return most * max(fake.numel() for fake in fakes)
        if any(not _is_whole(fake) for fake in fakes):  # argmax, topk, sort and the like
            return max(1, *(max(fake.shape, default=1) - 1 for fake in fakes))
        return int(most)


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())
