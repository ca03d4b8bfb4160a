"""The ways of a GPU: written for one, and never run on one so far.

Rows come from the host's memory and scores go back to it, as where a model is served.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from automl.config import ExportFormat
from automl.export import reader
from automl.export.tracing import quiet_exporters
from automl.measure.tuning.choice import ScoreFunction
from automl.measure.tuning.workshop import (
    CallableWay,
    InferenceWay,
    WayArtifacts,
    WayUnavailableError,
)

N_STREAMS = 4
_WARM_UP_CALLS = 3
_SMALLEST_PART = 1024
"""Rows that a stream is worth."""


def cuda_inference_ways() -> Iterator[InferenceWay]:
    """In the order in which they are measured; what rounds last."""
    why_not = "" if torch.cuda.is_available() else "there is no NVIDIA GPU"
    yield from (replace(way, why_not=why_not) for way in _ways())


def _ways() -> Iterator[InferenceWay]:
    yield InferenceWay("GPU, eager", partial(_plain, rounded=False))
    yield InferenceWay("GPU, torch.compile", _compiled, making_seconds=20)
    yield InferenceWay("GPU, CUDA graph", partial(_graphed, rounded=False))
    yield InferenceWay(f"GPU, {N_STREAMS} CUDA streams", _streamed)
    yield InferenceWay("GPU, TensorRT", _tensorrt, making_seconds=40, rounds=True)
    yield InferenceWay("GPU, bf16", partial(_plain, rounded=True), rounds=True)
    yield InferenceWay("GPU, bf16, CUDA graph", partial(_graphed, rounded=True), rounds=True)
    yield InferenceWay("GPU, int8 by torchao", _torchao, rounds=True)


def _on_gpu(shop: WayArtifacts, *, rounded: bool = False) -> Any:
    return (shop.rounded() if rounded else copy.deepcopy(shop.graph)).cuda()


def _plain(shop: WayArtifacts, *, rounded: bool) -> CallableWay:
    return CallableWay(reader.wrap_torch_module(_on_gpu(shop, rounded=rounded), "cuda"))


def _compiled(shop: WayArtifacts) -> CallableWay:
    compiled = torch.compile(_on_gpu(shop), dynamic=True)
    with quiet_exporters():
        scores = reader.wrap_torch_module(compiled, "cuda")
        scores(**shop.example)
    return CallableWay(scores)


def _graphed(shop: WayArtifacts, *, rounded: bool) -> CallableWay:
    return CallableWay(CudaGraphReplay(_on_gpu(shop, rounded=rounded)))


def _streamed(shop: WayArtifacts) -> CallableWay:
    return CallableWay(on_streams(_on_gpu(shop), N_STREAMS))


def _tensorrt(shop: WayArtifacts) -> CallableWay:
    _on_gpu(shop)
    if find_spec("torch_tensorrt") is None:
        raise WayUnavailableError(
            "torch_tensorrt is not installed: pip install 'automl-sweep[tensorrt]'"
        )
    file = shop.written(ExportFormat.tensorrt)
    return CallableWay(reader.open_tensorrt(file, 1), file, ExportFormat.tensorrt)


def _torchao(shop: WayArtifacts) -> CallableWay:
    graph = _on_gpu(shop)
    if find_spec("torchao") is None:
        raise WayUnavailableError("torchao is not installed: pip install torchao")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(graph.networks, Int8DynamicActivationInt8WeightConfig())
    return CallableWay(reader.wrap_torch_module(graph, "cuda"))


class CudaGraphReplay:
    """Replays what was captured with as many rows (https://pytorch.org/docs/stable/notes/cuda.html,
    "CUDA Graphs"): the kernels of a call are launched as one."""

    def __init__(self, module: Callable[..., torch.Tensor]) -> None:
        self._module = module
        self._captured: dict[int, tuple[Any, dict[str, torch.Tensor], torch.Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, **arrays: Any) -> Any:
        given = {name: torch.from_numpy(array) for name, array in arrays.items()}
        n_rows = len(next(iter(given.values())))
        if n_rows not in self._captured:
            self._captured[n_rows] = self._capture(given)
        graph, held, out = self._captured[n_rows]
        for name, tensor in given.items():
            held[name].copy_(tensor)
        graph.replay()
        return out.cpu().numpy()

    def _capture(
        self, given: dict[str, torch.Tensor]
    ) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
        held = {name: tensor.cuda() for name, tensor in given.items()}
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # what is made at first calls must not be captured
            for _ in range(_WARM_UP_CALLS):
                self._module(**held)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self._module(**held)
        return graph, held, out


def on_streams(module: Callable[..., torch.Tensor], n_streams: int) -> ScoreFunction:
    """Large batches in parts, each on a stream of its own, so that copies and kernels overlap."""
    streams = [torch.cuda.Stream() for _ in range(n_streams)]  # type: ignore[no-untyped-call]

    @torch.inference_mode()
    def scores(**arrays: Any) -> Any:
        given = {name: torch.from_numpy(array).pin_memory() for name, array in arrays.items()}
        n_rows = len(next(iter(given.values())))
        parts: list[torch.Tensor] = []
        for part, stream in zip(row_slices(n_rows, n_streams), streams, strict=False):
            with torch.cuda.stream(stream):
                held = {
                    n: tensor[part].to("cuda", non_blocking=True) for n, tensor in given.items()
                }
                parts.append(module(**held).to("cpu", non_blocking=True))
        torch.cuda.synchronize()
        return torch.cat(parts).numpy()

    return scores


def row_slices(n_rows: int, n_parts: int) -> Sequence[slice]:
    """Parts of about the same size, fewer where they would be small."""
    n_parts = max(1, min(n_parts, n_rows // _SMALLEST_PART))
    size = -(-n_rows // n_parts)
    return [slice(begin, min(begin + size, n_rows)) for begin in range(0, max(n_rows, 1), size)]
