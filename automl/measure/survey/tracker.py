"""Runs operations on fake tensors with the memory that they would take on a device.

A fake tensor stands for a tensor on the device; a real tensor is on the host. Every storage that an
operation makes is counted in `DeviceStorages`. Floats are not computed. Integers and booleans
mostly come from the host (labels, lengths, masks, indices), decide sizes and cost nothing: their
values are kept beside the fake tensor if all values that they follow from are known. An unknown
integer counts as the largest possible value, so that no size is too small.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from automl.measure.survey.allocator import DeviceStorages, storage_bytes
from automl.measure.survey.survey_result import SurveyOverError


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


aten = torch.ops.aten

_TAKES_HOST = frozenset(
    f"aten::{name}"
    for name in ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")
) | {
    "aten::_foreach_copy_",
    "aten::set_",
    "aten::lift_fresh",
    "aten::_pack_padded_sequence_backward",
}
"""The operations on a device tensor that take tensors of the host, too."""
_WITH_INDICES = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
_IN_PLACE_WITHOUT_FAKE = (
    "aten::_fused_adam_",
    "aten::_fused_adamw_",
    "aten::_fused_sgd_",
    "aten::_fused_adagrad_",
    "aten::_amp_foreach_non_finite_check_and_unscale_",
    "aten::_amp_update_scale_",
)
"""The operations in place that have no fake implementation; they allocate nothing that stays."""


class _TrackedFakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake mode that raises a doubt if another thread uses it, which the tracker cannot see."""

    def __init__(self, doubt: Callable[[str], None]) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._doubt, self._thread = doubt, threading.get_ident()

    @property
    def in_its_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def dispatch(self, *args: Any, **kwargs: Any) -> object:
        if not self.in_its_thread:
            self._doubt(
                "it computes on the GPU in a thread of its own, which a survey does not see"
            )
        return super().dispatch(*args, **kwargs)


class DeviceMemoryTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory of every operation of its thread, below autograd."""

    def __init__(
        self, storages: DeviceStorages, values: KnownValues, doubt: Callable[[str], None]
    ) -> None:
        """Take `doubt`, which is called with a reason why memory may have been missed."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages, self.values, self.doubt = storages, values, doubt
        self.fake_mode = _TrackedFakeMode(doubt)
        self._n_inside = 0
        self.is_over = False
        self._makes_on_device = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if self.is_over:  # an objective that swallowed the error meets it again
            raise SurveyOverError
        fakes = fakes_in(args, kwargs)
        if not fakes:
            return self._on_host(func, args, kwargs)
        with self.inside_torch():
            for fake in fakes:
                self.storages.see(fake)
            out = self._run_on_device(func, args, kwargs, fakes)
        for fake in fakes_in(out):
            self.storages.see(fake)
            if fake.layout is not torch.strided:
                self.doubt("it makes sparse tensors, whose memory a survey does not count")
        return out

    @contextmanager
    def making_on_device(self, on_device: bool) -> Iterator[None]:
        """Put tensors that torch makes from no tensor within the `with` on the device."""
        before, self._makes_on_device = self._makes_on_device, on_device
        try:
            yield
        finally:
            self._makes_on_device = before

    @contextmanager
    def inside_torch(self) -> Iterator[None]:
        """Show fake tensors within the `with` as torch needs them: with the host as device."""
        self._n_inside += 1
        try:
            yield
        finally:
            self._n_inside -= 1

    @property
    def is_inside_torch(self) -> bool:
        """Whether torch itself asks for the device of a fake tensor.

        In a thread that is not tracked, torch always asks itself.
        """
        return self._n_inside > 0 or not self.fake_mode.in_its_thread

    def fake(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a copy of a host tensor on the device, with its values if it is small."""
        assert tensor.layout is torch.strided, f"{tensor.layout} tensors are not surveyed"
        with self.inside_torch(), torch.no_grad():
            with self.fake_mode:
                out = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device="cpu"
                )
            self.storages.see(out)
            self.values.learn_copy(out, tensor)
        return out

    def make_on_device(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the tensor that `func` makes of sizes and numbers, on the device.

        The values of few integers are known.
        """
        with self.inside_torch(), self.fake_mode:
            out = func(*args, **kwargs)
        if isinstance(out, FakeTensor):
            self.storages.see(out)
            if self.values.can_keep(out):
                self.values.learn(out, func(*args, **kwargs))
        return out

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation without device tensors; without any tensor it may make a device one."""
        if self._makes_on_device and not any(True for _ in tensors_in(args, kwargs)):
            return self.make_on_device(func, args, kwargs)
        return func(*args, **kwargs)

    def _run_on_device(self, func: Any, args: Any, kwargs: Any, fakes: Sequence[Any]) -> Any:
        name = func._schema.name
        if func is aten._local_scalar_dense.default:
            return self.values.item(args[0])
        if func is aten.equal.default:
            return self._equal(*args)
        if name in _IN_PLACE_WITHOUT_FAKE:
            return self._in_place(name, args)
        if func is aten._pack_padded_sequence.default:
            return _pack_padded(*args)
        self._refuse_mix(name, args, kwargs)
        if name == "aten::copy_" and not isinstance(args[0], FakeTensor):
            return args[0].copy_(self.values.on_host(args[1]))
        if torch.Tag.data_dependent_output in func.tags or (
            torch.Tag.dynamic_output_shape in func.tags and name not in _WITH_INDICES
        ):
            return self._run_with_unknown_size(func, args, kwargs, fakes)
        if name in _WITH_INDICES:
            args = (args[0], self._indices(args[1]), *args[2:])
        if func is aten.mkldnn_rnn_layer_backward.default:
            return self._lstm_backward(func, args)
        out = func(*args, **kwargs)
        if func is aten.mkldnn_rnn_layer.default:
            return (*out[:3], self._lstm_workspace(*args))
        self.values.follow(func, args, kwargs, out, fakes)
        return out

    def _equal(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        if left.shape != right.shape:
            return False
        known = self.values.all_known(fakes_in(left, right))
        return bool(torch.equal(*self.values.real((left, right)))) if known else self.values.truth

    def _in_place(self, name: str, args: Any) -> Any:
        if name == "aten::_amp_foreach_non_finite_check_and_unscale_":
            self.values.learn(args[1], torch.zeros(()))  # else the scaler takes no step
        return args[0] if name == "aten::_amp_update_scale_" else None

    def _refuse_mix(self, name: str, args: Any, kwargs: Any) -> None:
        """Raise the error of CUDA if a tensor is still on the host."""
        if name in _TAKES_HOST:
            return
        for tensor in tensors_in(args, kwargs):
            if not isinstance(tensor, FakeTensor) and tensor.dim():
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, cuda:0 and cpu! (in {name})"
                )

    def _indices(self, indices: Sequence[Any]) -> list[Any]:
        """Return the indices with masks as positions; an unknown mask selects every position."""
        return [position for index in indices for position in self._positions(index)]

    def _positions(self, index: Any) -> Sequence[Any]:
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.bool, torch.uint8):
            return [index]
        known = self.values.known(index) if isinstance(index, FakeTensor) else index
        if known is not None:
            return [self.fake(column) for column in known.nonzero().unbind(1)]
        return [self._empty(index.numel()) for _ in range(index.dim())]

    def _run_with_unknown_size(
        self, func: Any, args: Any, kwargs: Any, fakes: Sequence[Any]
    ) -> Any:
        """Return the result of an operation whose size depends on values.

        The size is exact for known values, else the largest possible. Raises NotImplementedError
        for other operations.
        """
        if self.values.all_known(fakes):
            real_args, real_kwargs = self.values.real((args, kwargs))
            return tree_map_only(torch.Tensor, self.fake, func(*real_args, **real_kwargs))
        name, n = func._schema.name, fakes[0].numel()
        if name == "aten::nonzero":
            return self._empty(n, fakes[0].dim())
        if name == "aten::masked_select":
            return self._masked_select(*args)
        if name in ("aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"):
            return args[0].new_empty(n), self._empty(n), self._empty(n)
        if name == "aten::bincount":
            largest = self.values.largest(args[0])
            return self._empty(max(n, *(a for a in args[2:] if a), largest + 1))
        if name == "aten::allclose":
            return self.values.truth
        raise NotImplementedError(f"{name}: the size of what it gives depends on values")

    def _masked_select(self, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)  # type: ignore[no-untyped-call]
        known = self.values.known(mask) if isinstance(mask, FakeTensor) else mask
        n = shape.numel() if known is None else int(known.broadcast_to(shape).sum())
        return tensor.new_empty(n)

    def _lstm_workspace(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        """Return the workspace that an LSTM keeps for its gradient; the fake LSTM makes none.

        The size is fitted to oneDNN's, 2 to 7 % above it from 16 steps on; cuDNN's was not
        measured.
        """
        (n_steps, n_rows, n_inputs), width, train = x.shape, rest[9], rest[14]
        n_floats = (n_steps + 1) * n_rows * (9 * width + 7 * max(n_inputs, width))
        return self._bytes(4 * n_floats if train else 0)

    def _lstm_backward(self, func: Any, args: Any) -> Any:
        """Run the backward pass of an LSTM with its temporary memory.

        oneDNN lays the weights out anew, twice, and keeps the gradients of four gates.
        """
        x, weights, width = args[0], args[1:5], args[5].shape[-1]
        n_steps, n_rows, _ = x.shape
        temporary = self._bytes(2 * storage_bytes(weights) + 4 * 4 * n_steps * n_rows * width)
        self.storages.see(temporary)
        out = func(*args)
        for fake in fakes_in(out):
            self.storages.see(fake)
        return out

    def _bytes(self, n: int) -> torch.Tensor:
        with self.fake_mode:
            return torch.empty(n, dtype=torch.uint8)

    def _empty(self, *shape: int) -> torch.Tensor:
        with self.fake_mode:
            return torch.empty(shape, dtype=torch.int64)


def _pack_padded(
    padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a padded batch as packed rows on the device, and the rows of each step on the host.

    The host has the lengths, so it has the row counts, too.
    """
    shape = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    _, sizes = torch._pack_padded_sequence(torch.empty(*shape, 1), lengths, True)
    return padded.new_empty(int(lengths.sum()), *padded.shape[2:]), sizes
