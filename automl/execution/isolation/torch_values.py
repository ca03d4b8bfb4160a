"""Reads and puts back the values of torch that a trial may change (the list: `watched_values.py`).

torch is never imported here, since a trial that changed one of its values has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class TorchValue:
    """A watched value of torch. It reads as None, and is not put back, before torch is imported."""

    def __init__(self, get: Callable[[Any], Any], put_back: Callable[[Any, Any], None]) -> None:
        self._get, self._put_back = get, put_back

    def get(self) -> Any:
        torch = sys.modules.get("torch")
        return None if torch is None else self._get(torch)

    def put_back(self, before: Any) -> None:
        if before is not None:
            self._put_back(sys.modules["torch"], before)


DEFAULT_DTYPE = TorchValue(
    lambda torch: torch.get_default_dtype(),
    lambda torch, before: torch.set_default_dtype(before),
)


def _device(torch: Any) -> tuple[Any, ...]:
    """Return the default device as a tuple; empty where none was set.

    No default device costs less at each call of torch than a default device `cpu`.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return () if context is None else (context.device,)


def _put_back_device(torch: Any, before: tuple[Any, ...]) -> None:
    torch.set_default_device(before[0] if before else None)


DEFAULT_DEVICE = TorchValue(_device, _put_back_device)


def _modes(torch: Any) -> tuple[int, int, bool]:
    """Return the numbers of entered function and dispatch modes, then if inference mode is on."""
    return (
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.is_inference_mode_enabled(),
    )


def _put_back_modes(torch: Any, before: tuple[int, int, bool]) -> None:
    raise RuntimeError("one was entered, or left, for good")


TORCH_MODES = TorchValue(_modes, _put_back_modes)
GRAD_MODE = TorchValue(
    lambda torch: torch.is_grad_enabled(),
    lambda torch, before: torch.set_grad_enabled(before),
)


def _threads(torch: Any) -> tuple[int, int]:
    return torch.get_num_threads(), torch.get_num_interop_threads()


def _put_back_threads(torch: Any, before: tuple[int, int]) -> None:
    within, between = before
    torch.set_num_threads(within)
    if torch.get_num_interop_threads() != between:  # torch accepts this setting once per process
        torch.set_num_interop_threads(between)


TORCH_THREADS = TorchValue(_threads, _put_back_threads)


def _autocast(torch: Any) -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    enabled = tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices)
    return (torch.is_autocast_cache_enabled(), *zip(devices, enabled, strict=True))


def _put_back_autocast(torch: Any, before: tuple[Any, ...]) -> None:
    cached, *devices = before
    torch.set_autocast_cache_enabled(cached)
    for name, (enabled, autocast_dtype) in devices:
        torch.set_autocast_enabled(name, enabled)
        torch.set_autocast_dtype(name, autocast_dtype)
    torch.clear_autocast_cache()


AUTOCAST = TorchValue(_autocast, _put_back_autocast)
ANOMALY_DETECTION = TorchValue(
    lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    lambda torch, before: torch.autograd.set_detect_anomaly(*before),
)


def _deterministic(torch: Any) -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        cudnn.deterministic,
        cudnn.benchmark,
        cudnn.enabled,
    )


def _put_back_deterministic(torch: Any, before: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    enabled, warns_only, fills, cudnn.deterministic, cudnn.benchmark, cudnn.enabled = before
    if _deterministic(torch) != before:  # the first call imports torch's compiler, for seconds
        torch.use_deterministic_algorithms(enabled, warn_only=warns_only)
    torch.utils.deterministic.fill_uninitialized_memory = fills


DETERMINISTIC_FLAGS = TorchValue(_deterministic, _put_back_deterministic)


def _backends_with_precision(torch: Any) -> tuple[Any, ...]:
    """Return the backends that hold a float32 precision of their own, the more general first."""
    b = torch.backends
    return b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn, b.mkldnn, b.mkldnn.matmul


def _precision(torch: Any) -> tuple[str | None, ...]:
    matmul = None
    with suppress(RuntimeError):  # torch's older getter fails where its newer settings were used
        matmul = torch.get_float32_matmul_precision()
    return (matmul, *(backend.fp32_precision for backend in _backends_with_precision(torch)))


def _put_back_precision(torch: Any, before: tuple[str | None, ...]) -> None:
    matmul, *precisions = before
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)  # sets the precision of some backends, too
    for backend, value in zip(_backends_with_precision(torch), precisions, strict=True):
        if backend.fp32_precision != value:
            backend.fp32_precision = value


FLOAT32_PRECISION = TorchValue(_precision, _put_back_precision)
