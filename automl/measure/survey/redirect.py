"""Redirects `cuda` in an objective to fake tensors; a tensor that leaves the device becomes real.

The redirection works above autograd, where Python calls torch. Calls that bypass it (from a thread
of the objective's own, or from a C extension) meet `torch.cuda._lazy_init`, which `pretence.py`
replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.utils._device
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

from automl.measure.survey.tracker import DeviceMemoryTracker, fakes_in

FAKE_GPU = torch.device("cuda", 0)
_HALF = (torch.float16, torch.bfloat16)
_IN_FLOAT32 = {
    "softmax",
    "log_softmax",
    "softmin",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "norm",
    "normalize",
    "cosine_similarity",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss_nd",
    "cross_entropy_loss",
    "l1_loss",
    "smooth_l1_loss",
    "mse_loss",
    "huber_loss",
    "kl_div",
    "margin_ranking_loss",
    "triplet_margin_loss",
    "binary_cross_entropy_with_logits",
    "poisson_nll_loss",
    "ctc_loss",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "pow",
    "__pow__",
    "__rpow__",
    "reciprocal",
    "rsqrt",
    "sum",
    "cumsum",
    "prod",
    "cumprod",
    "dist",
    "cdist",
    "renorm",
    "logsumexp",
    "erfinv",
    "cosh",
    "sinh",
    "tan",
    "acos",
    "asin",
    "softplus",
}
"""The operations that autocast computes in float32 on CUDA, and on a CPU mostly not
(docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32)."""


class CudaRedirect(TorchFunctionMode):
    """A torch function mode that makes fake tensors of all tensors on `cuda`."""

    def __init__(self, tracker: DeviceMemoryTracker) -> None:
        super().__init__()
        self._tracker, self._values = tracker, tracker.values
        self._constructors = _device_constructors()
        self._special: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: self._cuda,
            torch.Tensor.to: self._to,
            torch.Tensor.cpu: lambda t, **_: self._to_host(t),
            torch.Tensor.numpy: lambda t, **k: self._to_host(t).numpy(),
            torch.Tensor.__array__: lambda t, *a: self._to_host(t).__array__(*a),  # type: ignore[no-untyped-call]
            torch.Tensor.tolist: lambda t: self._to_host(t).tolist(),
            torch.Tensor.pin_memory: lambda t, *_, **__: t,
            torch.Tensor.is_pinned: lambda t, *_, **__: False,
            torch.Tensor.get_device: lambda t: 0 if _is_fake(t) else -1,
            torch.Tensor.is_cuda.__get__: _is_fake,  # type: ignore[attr-defined]
            torch.Tensor.is_cpu.__get__: lambda t: not _is_fake(t),  # type: ignore[attr-defined]
            torch.Tensor.data.__set__: self._set_data,  # type: ignore[attr-defined]
            torch.Tensor.record_stream: lambda t, stream: None,
            torch.dropout: self._dropout,
            torch.tensor: partial(self._tensor, torch.tensor),
            torch.as_tensor: partial(self._tensor, torch.as_tensor),
            torch.isfinite: lambda t: self._answer_if_unknown(torch.isfinite, t, True),
            torch.isnan: lambda t: self._answer_if_unknown(torch.isnan, t, False),
            torch.isinf: lambda t: self._answer_if_unknown(torch.isinf, t, False),
            torch.Tensor.isfinite: lambda t: self._answer_if_unknown(torch.isfinite, t, True),
            torch.Tensor.isnan: lambda t: self._answer_if_unknown(torch.isnan, t, False),
            torch.Tensor.isinf: lambda t: self._answer_if_unknown(torch.isinf, t, False),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if self._tracker.is_inside_torch:
            return func(*args, **kwargs)
        special = self._special.get(func)
        with self._tracker.making_on_device(special is None and bool(fakes_in(args, kwargs))):
            return (special or partial(self._call, func))(*args, **kwargs)

    def _call(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs or func in self._constructors:
            return self._make(func, args, kwargs)
        if torch.is_autocast_enabled("cpu") and getattr(func, "__name__", "") in _IN_FLOAT32:
            args, kwargs = tree_map(_in_float32, (args, kwargs))
        return func(*args, **kwargs)

    def _make(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of a call that names a device, or that makes a tensor."""
        device = kwargs.get("device")
        if device is None:
            device = None if fakes_in(args) else torch.utils._device.CURRENT_DEVICE
        if device is None or not names_gpu(device):
            if kwargs.get("device") is not None and fakes_in(args):
                return self._to_host(func(*args, **{**kwargs, "device": None}))
            return func(*args, **kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        kwargs = {k: v for k, v in kwargs.items() if not isinstance(v, torch.Generator)}
        args = tree_map(_as_size, args)
        if not fakes_in(args, kwargs):
            return self._tracker.make_on_device(func, args, {**kwargs, "device": "cpu"})
        with self._tracker.inside_torch(), self._tracker.fake_mode:
            out = func(*args, **kwargs, device="cpu")
        self._tracker.storages.see(out)
        return out

    def _tensor(self, func: Any, data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run `torch.tensor` or `torch.as_tensor` on the host, and move the result."""
        device = kwargs.pop("device", None)
        if _is_fake(data):
            return data if device is None else self._to(data, device, **kwargs)
        device = device if device is not None else torch.utils._device.CURRENT_DEVICE
        out: torch.Tensor = func(data, *args, **kwargs, device="cpu")
        return self._move_to_device(out, None) if names_gpu(device) else out

    def _cuda(self, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return self._to(tensor, FAKE_GPU)

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        device, dtype = _target_of_to(args, kwargs)
        copy = bool(kwargs.get("copy")) or (len(args) > 3 and bool(args[3]))
        if device is None or names_gpu(device) == _is_fake(tensor):
            return tensor.to(dtype or tensor.dtype, copy=copy)
        if not names_gpu(device):
            return self._to_host(tensor, dtype)
        if tensor.requires_grad and torch.is_grad_enabled():
            moved: torch.Tensor = _MoveToDevice.apply(tensor, self._tracker, dtype)  # type: ignore[no-untyped-call]
            return moved
        return self._move_to_device(tensor, dtype)

    def _move_to_device(self, tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        out = self._tracker.fake(tensor.detach(), dtype)
        return out.requires_grad_() if tensor.requires_grad and tensor.is_leaf else out

    def _to_host(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        if not _is_fake(tensor):
            return tensor if dtype is None else tensor.to(dtype)
        if tensor.requires_grad and torch.is_grad_enabled():
            moved: torch.Tensor = _MoveToHost.apply(tensor, self._tracker, dtype)  # type: ignore[no-untyped-call]
            return moved
        return self._values.on_host(tensor, dtype)

    def _set_data(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Set `tensor.data = data`, also from the host to the device and back."""
        if _is_fake(tensor) == _is_fake(data):
            torch.Tensor.data.__set__(tensor, data)  # type: ignore[attr-defined]
            return
        swap_tensors(tensor, nn.Parameter(data, tensor.requires_grad))

    def _dropout(self, tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        """Apply dropout with a mask of bytes, as CUDA keeps it; a CPU's has the tensor's type."""
        if _is_fake(tensor) and train and p:
            return torch.native_dropout(tensor, p, True)[0]
        return torch.dropout(tensor, p, train)

    def _answer_if_unknown(self, func: Any, tensor: torch.Tensor, answer: bool) -> torch.Tensor:
        """Return the result of a test for NaN or infinity, and `answer` for unknown values.

        Floats are not computed, so they are assumed not to diverge.
        """
        out: torch.Tensor = func(tensor)
        if _is_fake(out) and self._values.known(out) is None:
            self._values.learn(out, torch.tensor(answer).expand(out.shape))
        return out


def swap_tensors(first: torch.Tensor, second: torch.Tensor) -> None:
    """Exchange the content of two tensors, so that each keeps its identity.

    An optimizer that holds a parameter then holds it on the device, as after `Module.to` has set
    its `data`. `torch.utils.swap_tensors` refuses fake tensors, because their mode keeps weak
    references to them; here nothing follows the references.
    """
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)


def names_gpu(device: Any) -> bool:
    """Return whether a user's device is the GPU: `cuda`, `cuda:0`, or a number."""
    if device is None:
        return False
    return isinstance(device, int) or torch.device(device).type == "cuda"


class _MoveToDevice(torch.autograd.Function):
    """Moves a tensor that was computed on the host to the device, and its gradient back."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, tracker: DeviceMemoryTracker, dtype: Any
    ) -> torch.Tensor:
        ctx.dtype, ctx.values = tensor.dtype, tracker.values
        return tracker.fake(tensor, dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.values.on_host(grad, ctx.dtype), None, None


class _MoveToHost(torch.autograd.Function):
    """Moves a tensor that was computed on the device to the host, and its gradient back."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, tracker: DeviceMemoryTracker, dtype: Any
    ) -> torch.Tensor:
        ctx.dtype, ctx.tracker = tensor.dtype, tracker
        return tracker.values.on_host(tensor, dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.tracker.fake(grad, ctx.dtype), None, None


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def _as_size(leaf: Any) -> Any:
    """Return a size that is a tensor as its number, which must be read outside of fake mode."""
    is_size = isinstance(leaf, torch.Tensor) and leaf.dim() == 0 and not leaf.is_floating_point()
    return leaf.item() if is_size else leaf


def _in_float32(leaf: Any) -> Any:
    return leaf.float() if _is_fake(leaf) and leaf.dtype in _HALF else leaf


def _target_of_to(args: Any, kwargs: dict[str, Any]) -> tuple[Any, torch.dtype | None]:
    """Return device and dtype in the arguments of `Tensor.to`, in any form; None if not named."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for value in (*args, kwargs.get("other")):
        if isinstance(value, torch.Tensor):
            device, dtype = FAKE_GPU if _is_fake(value) else "cpu", value.dtype
        elif isinstance(value, str | torch.device) or type(value) is int:
            device = value
        elif isinstance(value, torch.dtype):
            dtype = value
    return device, dtype
