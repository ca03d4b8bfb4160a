"""The ways of running a model that are measured, on a CPU and on a GPU.

A way with a file runs a possible export, by the reader of exports. The other ways are measured and
shown, and cannot be exported. The ways for a GPU have not been run on one yet; rows come from the
host's memory and scores go back to it, as when a model is served.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from automl.config import ExportFormat
from automl.errors import ConfigError
from automl.export import reader
from automl.export.formats import EXPORT_FORMATS, check_compiler, quantize_onnx
from automl.export.network_graph import ScoringModule, is_network_predictor, make_scoring_module
from automl.export.tracing import quiet_exporters, trace_module
from automl.models.predictor import Predictor

ScoreFunction = Callable[..., Any]
"""Takes the arrays `numbers` (N, …) and `codes` (N, …), and returns scores (N, …)."""
InputArrays = Mapping[str, npt.NDArray[Any]]


def first_rows(rows: InputArrays, n_rows: int) -> dict[str, npt.NDArray[Any]]:
    """Return the first `n_rows` rows; too few rows repeat from the beginning."""
    places = np.arange(n_rows)
    return {name: array[places % len(array)] for name, array in rows.items()}


class WayUnavailableError(Exception):
    """Raised when a way cannot be measured here; its text is the reason, for people."""


@dataclass(frozen=True)
class CallableWay:
    """A way of running a model that is ready to be called."""

    scores: ScoreFunction
    file: Path | None = None
    """The file that the way runs, if it can be an export."""
    format: ExportFormat | None = None


@dataclass(frozen=True)
class InferenceWay:
    """A way of running a model, before it is made ready."""

    name: str
    make: Callable[[WayArtifacts], CallableWay]
    """Makes the way ready to be called. Raises WayUnavailableError."""
    threads: int | None = None
    rounds: bool = False
    """Whether the way computes in fewer bits than the training."""
    why_not: str = ""
    """The reason why the way cannot be measured here, if that is known beforehand."""
    any_model: bool = False
    """Whether the way also runs models that are no networks."""
    making_seconds: float = 2.0
    """About the time to make the way ready, on two cores; compiled ways take longer."""


class WayArtifacts:
    """The graph of a model and its files in all formats, from which ways are made."""

    def __init__(self, predictor: Predictor, arrays: InputArrays, folder: Path) -> None:
        """Take example rows as inputs of the graph, and the folder of the files.

        Raises AutoMLError for a model that cannot be exported.
        """
        self._predictor = predictor
        self.example: dict[str, npt.NDArray[Any]] = first_rows(arrays, 2)
        self._folder, self._files = folder, dict[ExportFormat, Path]()

    @cached_property
    def graph(self) -> ScoringModule:
        """The graph of a network, or of the mean of several networks."""
        return make_scoring_module(self._predictor)

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """The traced graph. Raises ConfigError for a network that cannot be traced."""
        return trace_module(self.graph, self.example)

    @cached_property
    def onnx_int8(self) -> Path:
        """The ONNX file with int8 weights; activations are quantized at run time."""
        file = self._folder / "int8.onnx"
        quantize_onnx(self.file_of(ExportFormat.onnx), file)
        return file

    def file_of(self, kind: ExportFormat) -> Path:
        """Return the file of a format, which is written once. Raises WayUnavailableError."""
        if kind not in self._files:
            self._files[kind] = self._write(kind)
        return self._files[kind]

    def bfloat16_graph(self) -> ScoringModule:
        """Return the graph with its networks in bfloat16; the columns keep their precision."""
        graph = copy.deepcopy(self.graph)
        graph.networks.to(torch.bfloat16)
        graph.dtypes = [torch.bfloat16] * len(graph.dtypes)
        return graph

    def _write(self, kind: ExportFormat) -> Path:
        try:
            form = EXPORT_FORMATS[kind]
            form.check()
            file = self._folder / f"{kind.value}-{form.file}"
            if is_network_predictor(self._predictor):
                form.write(self.program, self.example, file)
            else:
                from automl.export import table_file  # imports onnx, which may be missing

                table_file.write(self._predictor, self.example, file)
        except ConfigError as error:
            raise WayUnavailableError(str(error).removeprefix(f"format={kind.value}: ")) from error
        return file


N_STREAMS = 4
_WARM_UP_CALLS = 3
_SMALLEST_PART = 1024
"""The fewest rows for which a stream is worth its cost."""


def cuda_inference_ways() -> Iterator[InferenceWay]:
    """Yield the ways of a GPU in the order of their measurement; ways that round come last."""
    why_not = "" if torch.cuda.is_available() else "there is no NVIDIA GPU"
    yield from (replace(way, why_not=why_not) for way in _cuda_ways())


def _cuda_ways() -> Iterator[InferenceWay]:
    yield InferenceWay("GPU, eager", partial(_make_cuda_eager, rounded=False))
    yield InferenceWay("GPU, torch.compile", _make_cuda_compiled, making_seconds=20)
    yield InferenceWay("GPU, CUDA graph", partial(_make_cuda_graph, rounded=False))
    yield InferenceWay(f"GPU, {N_STREAMS} CUDA streams", _make_streamed)
    yield InferenceWay("GPU, TensorRT", _make_tensorrt, making_seconds=40, rounds=True)
    yield InferenceWay("GPU, bf16", partial(_make_cuda_eager, rounded=True), rounds=True)
    yield InferenceWay(
        "GPU, bf16, CUDA graph", partial(_make_cuda_graph, rounded=True), rounds=True
    )
    yield InferenceWay("GPU, int8 by torchao", _make_torchao, rounds=True)


def _graph_on_gpu(artifacts: WayArtifacts, *, rounded: bool = False) -> Any:
    return (artifacts.bfloat16_graph() if rounded else copy.deepcopy(artifacts.graph)).cuda()


def _make_cuda_eager(artifacts: WayArtifacts, *, rounded: bool) -> CallableWay:
    graph = _graph_on_gpu(artifacts, rounded=rounded)
    return CallableWay(reader.wrap_torch_module(graph, "cuda"))


def _make_cuda_compiled(artifacts: WayArtifacts) -> CallableWay:
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


_NO_NETWORK = (
    "linear models and trees, alone or among others, are run by ONNX Runtime alone, in full"
)


def ways_here(predictor: Predictor) -> list[InferenceWay]:
    """Return all ways, with as many threads as torch takes here.

    A way that cannot run this model has a reason in `why_not`.
    """
    found = inference_ways(torch.get_num_threads())
    if is_network_predictor(predictor):
        return list(found)
    return [way if way.any_model else replace(way, why_not=_NO_NETWORK) for way in found]


def inference_ways(n_threads: int) -> Iterator[InferenceWay]:
    """Yield the ways of a CPU with at most `n_threads` threads, then those of a GPU."""
    for n in dict.fromkeys((1, n_threads)):
        yield InferenceWay("torch, eager", _make_eager, n)
    yield InferenceWay(
        "torch.export", partial(_make_from_file, ExportFormat.torch), n_threads, making_seconds=3
    )
    yield InferenceWay("torch.compile", _make_compiled, n_threads, making_seconds=15)
    yield InferenceWay(
        "aoti", partial(_make_from_file, ExportFormat.aoti), n_threads, making_seconds=25
    )
    for n in thread_options(n_threads):
        yield InferenceWay("onnx", partial(_make_onnx, n), n, any_model=True)
    for n in thread_options(n_threads):
        yield InferenceWay("onnx, int8", partial(_make_int8, n), n, rounds=True)
    yield InferenceWay("torch, bf16", _make_bf16, n_threads, rounds=True)
    yield from cuda_inference_ways()


def thread_options(n_threads: int) -> list[int]:
    """Return the numbers of threads to try: 1, 2, 4, … and all."""
    powers = [2**i for i in range(n_threads.bit_length())]
    return sorted({*powers, n_threads})


def _make_eager(artifacts: WayArtifacts) -> CallableWay:
    return CallableWay(reader.wrap_torch_module(artifacts.graph, "cpu"))


def _make_compiled(artifacts: WayArtifacts) -> CallableWay:
    try:
        check_compiler()
    except ConfigError as error:
        raise WayUnavailableError("there is no C++ compiler") from error
    scores = reader.wrap_torch_module(torch.compile(artifacts.graph, dynamic=True), "cpu")
    with quiet_exporters():
        for n_rows in (1, 64):  # torch compiles one row as a case of its own
            scores(**first_rows(artifacts.example, n_rows))
    return CallableWay(scores)


def _make_from_file(kind: ExportFormat, artifacts: WayArtifacts) -> CallableWay:
    file = artifacts.file_of(kind)
    return CallableWay(reader.OPENERS[kind.value](file, 1), file, kind)


def _make_onnx(n_threads: int, artifacts: WayArtifacts) -> CallableWay:
    file = artifacts.file_of(ExportFormat.onnx)
    return CallableWay(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _make_int8(n_threads: int, artifacts: WayArtifacts) -> CallableWay:
    file = artifacts.onnx_int8
    return CallableWay(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _make_bf16(artifacts: WayArtifacts) -> CallableWay:
    return CallableWay(reader.wrap_torch_module(artifacts.bfloat16_graph(), "cpu"))
