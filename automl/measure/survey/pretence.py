"""Makes torch answer questions about devices as if there were one GPU; undone at the end.

Only common calls of user code are answered. All others in `torch.cuda` end in `_lazy_init`, which
here raises and leaves a doubt, so that the survey is inconclusive.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only
from torch.utils.data._utils.worker import _worker_loop

from automl.measure.survey.redirect import FAKE_GPU, names_gpu, swap_tensors
from automl.measure.survey.tracker import DeviceMemoryTracker

_TOTAL_BYTES = 80 * 1024**3


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set `owner.name` to `value` within the `with`."""
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def pretend_one_gpu(tracker: DeviceMemoryTracker) -> Iterator[None]:
    """Make torch behave within the `with` as on a machine with one GPU."""
    with ExitStack() as stack:
        for name, answer in _answers(tracker).items():
            stack.enter_context(replace_attribute(torch.cuda, name, answer))
        for owner, name, value in (
            (FakeTensor, "device", _device(tracker)),
            (torch.utils, "swap_tensors", swap_tensors),
            (torch, "Generator", _HostGenerator),
            (torch.autocast, "__init__", _make_autocast_init(torch.autocast.__init__)),
            (torch, "compile", _skip_compile),
            (torch, "load", _make_load(torch.load)),
            (torch.nn.DataParallel, "scatter", _scatter),
            (torch.autograd, "_engine_run_backward", _make_backward(tracker)),
            (BaseProcess, "start", _make_start(BaseProcess.start, tracker.doubt)),
        ):
            stack.enter_context(replace_attribute(owner, name, value))
        stack.enter_context(expose_inner_calls())
        stack.enter_context(keep_parameter_identity())
        stack.enter_context(pretend_cuda_optimizers())
        yield


@contextmanager
def expose_inner_calls() -> Iterator[None]:
    """Show the calls inside torch's Python functions to torch function modes.

    A function that is handed to a mode hides its inner calls from the mode. Within the `with` such
    a function is not handed over, but all its inner calls are.
    """

    def no(*args: object) -> bool:
        return False

    with ExitStack() as stack:
        for module in (torch.functional, torch.nn.functional, torch.autograd, torch._tensor):
            for name in [name for name in vars(module) if name.startswith("has_torch_function")]:
                stack.enter_context(replace_attribute(module, name, no))
        yield


@contextmanager
def keep_parameter_identity() -> Iterator[None]:
    """Make `Module.to` swap the content of parameters, so that optimizers made before keep them."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


@contextmanager
def pretend_cuda_optimizers() -> Iterator[None]:
    """Make optimizers step all parameters at once, as on CUDA, which costs temporary copies."""

    def choose(params: object, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
        return False, not differentiable

    with ExitStack() as stack:
        for info in pkgutil.iter_modules(torch.optim.__path__):
            module = importlib.import_module(f"torch.optim.{info.name}")
            if hasattr(module, "_default_to_fused_or_foreach"):
                stack.enter_context(
                    replace_attribute(module, "_default_to_fused_or_foreach", choose)
                )
        # In a build of torch for CUDA it asks the GPU whether a graph is being captured.
        check = "_accelerator_graph_capture_health_check"
        if hasattr(torch.optim.Optimizer, check):
            stack.enter_context(
                replace_attribute(torch.optim.Optimizer, check, lambda optimizer: None)
            )
        yield


def _answers(tracker: DeviceMemoryTracker) -> dict[str, Any]:
    """Return the functions that replace those of `torch.cuda`, by name."""
    memory = tracker.storages.memory
    properties = SimpleNamespace(
        name="surveyed", major=9, minor=0, total_memory=_TOTAL_BYTES, multi_processor_count=132
    )

    def lazy_init() -> None:
        tracker.doubt("it asked CUDA for something that a survey does not see")
        raise RuntimeError("No CUDA GPUs are available (the objective is surveyed)")

    def free_memory(device: Any = None) -> tuple[int, int]:
        tracker.doubt(
            "it asks how much memory is free, so that what it takes depends on the device"
        )
        return _TOTAL_BYTES, _TOTAL_BYTES

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return {
        "_lazy_init": lazy_init,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": free_memory,
        "memory_allocated": lambda device=None: memory.allocated_bytes,
        "max_memory_allocated": lambda device=None: memory.peak_allocated_bytes,
        "memory_reserved": lambda device=None: memory.reserved_bytes,
        "max_memory_reserved": lambda device=None: memory.peak_reserved_bytes,
        "empty_cache": memory.empty_cache,
        "synchronize": nothing,
        "set_device": nothing,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "reset_peak_memory_stats": nothing,
        "reset_max_memory_allocated": nothing,
        "ipc_collect": nothing,
    }


def _device(tracker: DeviceMemoryTracker) -> property:
    """Return a `FakeTensor.device` that is the GPU for users, and the real device for torch."""
    own: Any = FakeTensor.__dict__["device"]
    return property(lambda fake: own.fget(fake) if tracker.is_inside_torch else FAKE_GPU, own.fset)


def _make_autocast_init(own: Callable[..., None]) -> Callable[..., None]:
    """Return an `autocast.__init__` that uses the CPU's list of operations, in bfloat16.

    `redirect.py` adds the operations that only CUDA's list has.
    """

    def init(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if torch.device(device_type).type == "cuda":
            half = dtype in (None, torch.float16)
            device_type, dtype = "cpu", torch.bfloat16 if half else dtype
        own(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    return init


def _skip_compile(model: Any = None, **_: Any) -> Any:
    """Return the model as `torch.compile` without a compiler.

    The survey then finds the memory of eager mode, which is rather more.
    """
    return (lambda function: function) if model is None else model


def _make_backward(tracker: DeviceMemoryTracker) -> Callable[..., Any]:
    own: Callable[..., Any] = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        on_device = any(isinstance(output, FakeTensor) for output in outputs)
        with tracker.making_on_device(on_device):
            return own(outputs, *args, **kwargs)

    return run


def _make_load(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `torch.load` that loads to the host, then moves tensor by tensor to the device."""

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        on_device = isinstance(map_location, str | torch.device | int) and names_gpu(map_location)
        loaded = own(f, "cpu" if on_device else map_location, *args, **kwargs)
        return (
            tree_map_only(torch.Tensor, lambda t: t.to(FAKE_GPU), loaded) if on_device else loaded
        )

    return load


def _scatter(self: Any, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
    """Scatter over one device: tensors that are on it already are not copied."""
    on_device = [tree_map_only(torch.Tensor, lambda t: t.to(FAKE_GPU), x) for x in (inputs, kwargs)]
    return (on_device[0],), (on_device[1],)


def _make_start(own: Callable[[Any], None], doubt: Callable[[str], None]) -> Callable[[Any], None]:
    def start(process: Any) -> None:
        if process._target is not _worker_loop:
            doubt("it starts processes, whose memory a survey does not see")
        own(process)

    return start


class _HostGenerator(torch.Generator):
    """A generator that draws on the host, also if it was made for the device."""

    def __new__(cls, device: Any = "cpu") -> _HostGenerator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]
