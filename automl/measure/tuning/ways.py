"""The ways of running a model that are measured; those of a GPU are in `cuda_ways.py`.

A way with a file runs a possible export, by the reader of exports. The other ways are measured and
shown, and cannot be exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from automl.config import ExportFormat
from automl.errors import ConfigError
from automl.export import reader
from automl.export.aoti_file import check as check_compiler
from automl.export.network_graph import is_network_predictor
from automl.export.tracing import quiet_exporters
from automl.measure.tuning.choice import first_rows
from automl.measure.tuning.cuda_ways import cuda_inference_ways
from automl.measure.tuning.workshop import (
    CallableWay,
    InferenceWay,
    WayArtifacts,
    WayUnavailableError,
)
from automl.models.predictor import Predictor

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
