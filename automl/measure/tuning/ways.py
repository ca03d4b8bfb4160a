"""The ways of running a model that are measured.

Those with a file run what an export can be, by the reader that an export brings; the others are
named, and written by nobody.
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
    """Those with as many threads as torch takes here; what cannot run this model says so."""
    found = inference_ways(torch.get_num_threads())
    if is_network_predictor(predictor):
        return list(found)
    return [way if way.any_model else replace(way, why_not=_NO_NETWORK) for way in found]


def inference_ways(n_threads: int) -> Iterator[InferenceWay]:
    """Those of a CPU with so many threads, and those of a GPU."""
    for n in dict.fromkeys((1, n_threads)):
        yield InferenceWay("torch, eager", _eager, n)
    yield InferenceWay(
        "torch.export", partial(_file, ExportFormat.torch), n_threads, making_seconds=3
    )
    yield InferenceWay("torch.compile", _compiled, n_threads, making_seconds=15)
    yield InferenceWay("aoti", partial(_file, ExportFormat.aoti), n_threads, making_seconds=25)
    for n in thread_options(n_threads):
        yield InferenceWay("onnx", partial(_onnx, n), n, any_model=True)
    for n in thread_options(n_threads):
        yield InferenceWay("onnx, int8", partial(_int8, n), n, rounds=True)
    yield InferenceWay("torch, bf16", _bf16, n_threads, rounds=True)
    yield from cuda_inference_ways()


def thread_options(n_threads: int) -> list[int]:
    """1, 2, 4, … and all."""
    powers = [2**i for i in range(n_threads.bit_length())]
    return sorted({*powers, n_threads})


def _eager(shop: WayArtifacts) -> CallableWay:
    return CallableWay(reader.wrap_torch_module(shop.graph, "cpu"))


def _compiled(shop: WayArtifacts) -> CallableWay:
    try:
        check_compiler()
    except ConfigError as error:
        raise WayUnavailableError("there is no C++ compiler") from error
    scores = reader.wrap_torch_module(torch.compile(shop.graph, dynamic=True), "cpu")
    with quiet_exporters():
        for n_rows in (1, 64):  # one row is a case of its own
            scores(**first_rows(shop.example, n_rows))
    return CallableWay(scores)


def _file(kind: ExportFormat, shop: WayArtifacts) -> CallableWay:
    file = shop.written(kind)
    return CallableWay(reader.OPENERS[kind.value](file, 1), file, kind)


def _onnx(n_threads: int, shop: WayArtifacts) -> CallableWay:
    file = shop.written(ExportFormat.onnx)
    return CallableWay(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _int8(n_threads: int, shop: WayArtifacts) -> CallableWay:
    file = shop.onnx_int8
    return CallableWay(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _bf16(shop: WayArtifacts) -> CallableWay:
    return CallableWay(reader.wrap_torch_module(shop.rounded(), "cpu"))
