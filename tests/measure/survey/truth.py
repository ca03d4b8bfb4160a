"""What an objective really allocates on the CPU, replayed through the same model: what a survey is
judged by."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import automl
from automl.measure.survey.allocator import CachingAllocator, DeviceStorages
from automl.measure.survey.pretence import pretend_cuda_optimizers
from tests.models.conftest import make_spec


class RealStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what operations make; not what was there before, such as the data."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages = DeviceStorages()
        self._foreign: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        for tensor in filter(torch.is_tensor, tree_leaves((args, kwargs))):
            if not self.storages.knows(tensor):
                self._keep_out(tensor)
        out = func(*args, **(kwargs or {}))
        for tensor in filter(torch.is_tensor, tree_leaves(out)):
            if DeviceStorages.key(tensor) not in self._foreign:
                self.storages.see(tensor)
        return out

    def _keep_out(self, tensor: torch.Tensor) -> None:
        key = DeviceStorages.key(tensor)
        gone = partial(self._foreign.pop, key)  # another may get its address
        self._foreign[key] = weakref.ref(tensor.untyped_storage(), lambda _: gone(None))


class ByteMasks(TorchFunctionMode):
    """Dropout as on CUDA, where its mask is of bytes."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if func is nn.functional.dropout and kwargs.get("training", True):
            return torch.native_dropout(args[0], args[1] if len(args) > 1 else kwargs["p"], True)[0]
        return func(*args, **kwargs)


class NoReports:
    last_step: int | None = None

    def restore(self) -> None:
        return None

    def report(self, *args: object) -> None:
        return None

    def set_tag(self, name: str, value: object) -> None:
        return None


def really_allocated(
    objective: Callable[[automl.TrialContext], object], folder: Path, **params: Any
) -> CachingAllocator:
    """Runs the objective on the CPU, whole."""
    spec = make_spec(folder, params)
    trial = automl.TrialContext(spec, devices=("cpu",), seed=0, record=NoReports())
    mode = RealStorages()
    with ExitStack() as stack:
        for context in (pretend_cuda_optimizers(), ByteMasks(), mode):
            stack.enter_context(context)
        objective(trial)
    return mode.storages.memory
