"""The weights that a `best.pt` of a network holds, checked before a network is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from automl.training.model_file import check

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def weights_of(state: Mapping[str, Any], file_bytes: int) -> dict[str, torch.Tensor]:
    """The weights by name: dense, in memory, and together no larger than the file."""
    weights = state["weights"]
    check(isinstance(weights, Mapping), "no weights", weights)
    for name, weight in weights.items():
        check(isinstance(name, str), "a weight without a name", name)
        dense = isinstance(weight, torch.Tensor) and weight.layout is torch.strided
        check(dense and weight.is_cpu, f"the weight {name[:50]!r}", type(weight))
    size_bytes = sum(weight.numel() * weight.element_size() for weight in weights.values())
    check(
        size_bytes <= file_bytes, f"weights larger than the file ({file_bytes} bytes)", size_bytes
    )
    return dict(weights)


def dtype_of(weights: Mapping[str, torch.Tensor]) -> torch.dtype:
    """What the network computes in."""
    found = next((w.dtype for w in weights.values() if w.is_floating_point()), None)
    check(found in _DTYPES, "weights of type", found)
    assert found is not None
    return found
