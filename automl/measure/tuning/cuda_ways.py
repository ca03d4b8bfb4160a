"""The ways of running a model on a GPU; they were never run on one so far.

Rows come from the host's memory and scores go back to it, as in a server of a model.
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
"""The fewest rows for which a stream is worth its cost."""


def cuda_inference_ways() -> Iterator[InferenceWay]:
    """Yield the ways of a GPU in the order of their measurement; ways that round come last."""
    why_not = "" if torch.cuda.is_available() else "there is no NVIDIA GPU"
    yield from (replace(way, why_not=why_not) for way in _ways())


def _ways() -> Iterator[InferenceWay]:
    yield InferenceWay("GPU, eager", partial(_make_eager, rounded=False))
    yield InferenceWay("GPU, torch.compile", _make_compiled, making_seconds=20)
    yield InferenceWay("GPU, CUDA graph", partial(_make_cuda_graph, rounded=False))
    yield InferenceWay(f"GPU, {N_STREAMS} CUDA streams", _make_streamed)
    yield InferenceWay("GPU, TensorRT", _make_tensorrt, making_seconds=40, rounds=True)
    yield InferenceWay("GPU, bf16", partial(_make_eager, rounded=True), rounds=True)
    yield InferenceWay(
        "GPU, bf16, CUDA graph", partial(_make_cuda_graph, rounded=True), rounds=True
    )
    yield InferenceWay("GPU, int8 by torchao", _make_torchao, rounds=True)


def _graph_on_gpu(artifacts: WayArtifacts, *, rounded: bool = False) -> Any:
    return (artifacts.bfloat16_graph() if rounded else copy.deepcopy(artifacts.graph)).cuda()


def _make_eager(artifacts: WayArtifacts, *, rounded: bool) -> CallableWay:
    graph = _graph_on_gpu(artifacts, rounded=rounded)
    return CallableWay(reader.wrap_torch_module(graph, "cuda"))


def _make_compiled(artifacts: WayArtifacts) -> CallableWay:
    compiled = torch.compile(_graph_on_gpu(artifacts), dynamic=True)
    with quiet_exporters():
        scores = reader.wrap_torch_module(compiled, "cuda")
        scores(**artifacts.example)
    return CallableWay(scores)


def _make_cuda_graph(artifacts: WayArtifacts, *, rounded: bool) -> CallableWay:
    return CallableWay(CudaGraphReplay(_graph_on_gpu(artifacts, rounded=rounded)))


def _make_streamed(artifacts: WayArtifacts) -> CallableWay:
    return CallableWay(split_over_streams(_graph_on_gpu(artifacts), N_STREAMS))


def _make_tensorrt(artifacts: WayArtifacts) -> CallableWay:
    _graph_on_gpu(artifacts)
    if find_spec("torch_tensorrt") is None:
        raise WayUnavailableError(
            "torch_tensorrt is not installed: pip install 'automl-sweep[tensorrt]'"
        )
    file = artifacts.file_of(ExportFormat.tensorrt)
    return CallableWay(reader.open_tensorrt(file, 1), file, ExportFormat.tensorrt)


def _make_torchao(artifacts: WayArtifacts) -> CallableWay:
    graph = _graph_on_gpu(artifacts)
    if find_spec("torchao") is None:
        raise WayUnavailableError("torchao is not installed: pip install torchao")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(graph.networks, Int8DynamicActivationInt8WeightConfig())
    return CallableWay(reader.wrap_torch_module(graph, "cuda"))


class CudaGraphReplay:
    """Runs a module by CUDA graphs, one for each number of rows, which launch all kernels as one.

    Source: https://pytorch.org/docs/stable/notes/cuda.html, "CUDA Graphs".
    """

    def __init__(self, module: Callable[..., torch.Tensor]) -> None:
        self._module = module
        self._captured: dict[int, tuple[Any, dict[str, torch.Tensor], torch.Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, **arrays: Any) -> Any:
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        n_rows = len(next(iter(inputs.values())))
        if n_rows not in self._captured:
            self._captured[n_rows] = self._capture(inputs)
        graph, buffers, out = self._captured[n_rows]
        for name, tensor in inputs.items():
            buffers[name].copy_(tensor)
        graph.replay()
        return out.cpu().numpy()

    def _capture(
        self, inputs: dict[str, torch.Tensor]
    ) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
        """Return the graph of a call, with the tensors of its inputs and of its output."""
        buffers = {name: tensor.cuda() for name, tensor in inputs.items()}
        warm_up_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        warm_up_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up_stream):  # set-up of first calls must not be captured
            for _ in range(_WARM_UP_CALLS):
                self._module(**buffers)
        torch.cuda.current_stream().wait_stream(warm_up_stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self._module(**buffers)
        return graph, buffers, out


def split_over_streams(module: Callable[..., torch.Tensor], n_streams: int) -> ScoreFunction:
    """Return a function that runs parts of a batch on several streams.

    Copies and kernels of different parts then overlap.
    """
    streams = [torch.cuda.Stream() for _ in range(n_streams)]  # type: ignore[no-untyped-call]

    @torch.inference_mode()
    def scores(**arrays: Any) -> Any:
        inputs = {name: torch.from_numpy(array).pin_memory() for name, array in arrays.items()}
        n_rows = len(next(iter(inputs.values())))
        parts: list[torch.Tensor] = []
        for part, stream in zip(row_slices(n_rows, n_streams), streams, strict=False):
            with torch.cuda.stream(stream):
                on_gpu = {
                    n: tensor[part].to("cuda", non_blocking=True) for n, tensor in inputs.items()
                }
                parts.append(module(**on_gpu).to("cpu", non_blocking=True))
        torch.cuda.synchronize()
        return torch.cat(parts).numpy()

    return scores


def row_slices(n_rows: int, n_parts: int) -> Sequence[slice]:
    """Return slices of about the same size, fewer than `n_parts` if they would be small."""
    n_parts = max(1, min(n_parts, n_rows // _SMALLEST_PART))
    size = -(-n_rows // n_parts)
    return [slice(begin, min(begin + size, n_rows)) for begin in range(0, max(n_rows, 1), size)]
